"""Twelve architectures with random weights, a tiny network, and a loader for each.

Frameworks are imported where they are used.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

Sample = dict[str, np.ndarray[Any, Any]]
_OPERATORS: list[Any] = []
"""Definitions last as long as the object that made them."""


def resnet50() -> Any:
    """ResNet-50 of torchvision."""
    return _torchvision("resnet50")


def mobilenet_v3() -> Any:
    """MobileNet V3 of torchvision."""
    return _torchvision("mobilenet_v3_small")


def efficientnet() -> Any:
    """EfficientNet of torchvision."""
    return _torchvision("efficientnet_b0")


def vit() -> Any:
    """A vision transformer of torchvision, with 6 layers of 192."""
    models = _torchvision_models()
    return _seeded(lambda: models.VisionTransformer(224, 16, 6, 3, 192, 768))


def bert_tiny() -> Any:
    """BERT of transformers, with 2 layers of 128."""
    if importlib.util.find_spec("torchvision"):
        # Transformers imports it where it is installed.
        _torchvision_models()
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512, vocab_size=1000
    )
    return _seeded(lambda: BertModel(config))


def lstm() -> Any:
    """A recurrent network over 20 steps."""
    import torch

    class Recurrent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = torch.nn.LSTM(16, 64, 2, batch_first=True)
            self.last = torch.nn.Linear(64, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.cells(x)[0][:, -1])

    return _seeded(Recurrent)


def unet() -> Any:
    """An encoder and a decoder with a skip connection."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
            self.middle = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
            self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
            self.out = nn.Conv2d(32, 2, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = self.down(x)
            return self.out(torch.cat([first, self.up(self.middle(first))], 1))

    return _seeded(Net)


def detector() -> Any:
    """Boxes above a score: as many as an image has, so the outputs' first axis varies."""
    import torch
    from torch import nn

    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Conv2d(3, 16, 3, stride=4)
            self.heads = nn.Conv2d(16, 5, 1)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            found = self.heads(torch.relu(self.features(x))).flatten(2).transpose(1, 2).reshape(-1, 5)
            scores = torch.sigmoid(found[:, 4])
            kept = torch.nonzero(scores > 0.5).squeeze(1)
            return found[kept, :4], scores[kept]

    return _seeded(Detector)


def keras_dense() -> Any:
    """Three dense layers of Keras."""
    import keras

    layers = keras.layers
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((16,)), layers.Dense(64, "relu"), layers.Dense(8, "softmax")])


def keras_convolution() -> Any:
    """A small convolutional network of Keras."""
    import keras

    layers = keras.layers
    keras.utils.set_random_seed(0)
    inputs = keras.Input((32, 32, 3))
    x = layers.Conv2D(16, 3, activation="relu")(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10)(x))


def scikit_learn() -> Any:
    """A random forest that tells three classes apart."""
    from sklearn.ensemble import RandomForestClassifier

    x, y = _table()
    return RandomForestClassifier(20, max_depth=6, random_state=0).fit(x, y)


def xgboost() -> Any:
    """Boosted trees for a number."""
    import xgboost as xgb

    x, y = _table()
    return xgb.XGBRegressor(n_estimators=20, max_depth=4).fit(x, y)


def tiny() -> Any:
    """A convolution and a linear layer of a few hundred bytes: what a step takes without a model."""
    # As the large networks do, so that the difference is theirs.
    _torchvision_models()
    from torch import nn

    convolution = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    return _seeded(lambda: nn.Sequential(convolution, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 8)))


def resnet50_data() -> Iterator[Sample]:
    """Images."""
    return _images(224)


mobilenet_v3_data = efficientnet_data = vit_data = tiny_data = resnet50_data


def bert_tiny_data() -> Iterator[Sample]:
    """Tokens of sentences of two lengths."""
    numbers = np.random.default_rng(0)
    for length in (16, 24):
        yield {
            "input_ids": numbers.integers(0, 1000, (2, length)),
            "attention_mask": np.ones((2, length), np.int64),
        }


def lstm_data() -> Iterator[Sample]:
    """Sequences of 20 steps."""
    return _numbers((20, 16))


def unet_data() -> Iterator[Sample]:
    """Small images."""
    return _images(64)


def detector_data() -> Iterator[Sample]:
    """Images, one at a time."""
    return _images(64, rows=1)


def keras_dense_data() -> Iterator[Sample]:
    """Rows of 16."""
    return _numbers((16,))


def keras_convolution_data() -> Iterator[Sample]:
    """Small images, with the channels last."""
    return _numbers((32, 32, 3))


def scikit_learn_data() -> Iterator[Sample]:
    """Rows of the table that the forest was fitted to."""
    for start in range(0, 32, 8):
        yield {"x": _table()[0][start : start + 8]}


xgboost_data = scikit_learn_data


def _torchvision(name: str) -> Any:
    models = _torchvision_models()
    return _seeded(lambda: getattr(models, name)(weights=None))


def _torchvision_models() -> Any:
    """The package of torchvision's networks, beside a torch for another device as well.

    The operators of torchvision on PyPI are built for CUDA, and without them its import ends where it describes them.
    Its networks need none of them, so the signatures are enough.
    """
    import torch

    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        _OPERATORS.append(torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            _OPERATORS[0].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    return torchvision.models


def _seeded(make: Any) -> Any:
    import torch

    torch.manual_seed(0)
    return make().eval()


def _images(size: int, rows: int = 2) -> Iterator[Sample]:
    return _numbers((3, size, size), rows)


def _numbers(shape: tuple[int, ...], rows: int = 2) -> Iterator[Sample]:
    numbers = np.random.default_rng(0)
    for _ in range(3):
        yield {"x": numbers.normal(size=(rows, *shape)).astype(np.float32)}


def _table() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    numbers = np.random.default_rng(0)
    x = numbers.normal(size=(300, 8)).astype(np.float32)
    return x, (x[:, 0] + x[:, 1] > 0).astype(np.int64) + (x[:, 2] > 1)
