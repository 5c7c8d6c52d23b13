"""The networks that every format is measured with, written once in torch with random weights of a fixed seed.

The file is also the ``model.py`` of the format ``eager``, so it imports nothing but torch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

SEED = 5
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
GROWTH, DENSE_BLOCKS = 32, (6, 12, 24, 16)
DENSE_WIDTH, DENSE_LAYERS = 512, 10
BERT_WORDS, BERT_POSITIONS = 30_522, 512


class Bottleneck(nn.Module):
    """Three convolutions with a way around them: [N, C, H, W] to [N, 4 width, H / stride, W / stride]."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
        )
        self.around: nn.Module = nn.Identity()
        if stride != 1 or channels != 4 * width:
            shortcut = nn.Conv2d(channels, 4 * width, 1, stride, bias=False)
            self.around = nn.Sequential(shortcut, nn.BatchNorm2d(4 * width))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return torch.relu(self.layers(x) + self.around(x))


class ResNet50(nn.Sequential):
    """FP32 [1, 3, 224, 224] to FP32 [1, 1000]; about four billion multiplications."""

    def __init__(self) -> None:
        layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for width, blocks in STAGES:
            for number in range(blocks):
                layers.append(Bottleneck(channels, width, 2 if number == 0 and width > 64 else 1))
                channels = 4 * width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


class DenseLayer(nn.Module):
    """Two convolutions whose output stands beside their input: [N, C, H, W] to [N, C + 32, H, W]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 4 * GROWTH, 1, bias=False)),
            *(nn.BatchNorm2d(4 * GROWTH), nn.ReLU(), nn.Conv2d(4 * GROWTH, GROWTH, 3, 1, 1, bias=False)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The input and what the layer adds to it."""
        return torch.cat((x, self.layers(x)), 1)


class DenseNet121(nn.Sequential):
    """FP32 [1, 3, 224, 224] to FP32 [1, 1000]; about three billion multiplications."""

    def __init__(self) -> None:
        channels = 2 * GROWTH
        layers: list[nn.Module] = [nn.Conv2d(3, channels, 7, 2, 3, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
        layers.append(nn.MaxPool2d(3, 2, 1))
        for number, count in enumerate(DENSE_BLOCKS):
            if number:
                layers += (nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels // 2, 1), nn.AvgPool2d(2))
                channels //= 2
            layers += [DenseLayer(channels + GROWTH * place) for place in range(count)]
            channels += GROWTH * count
        ends = (nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))
        super().__init__(*layers, *ends)


class Dense(nn.Sequential):
    """FP32 [16, 512] to the same; about a millisecond on one core."""

    def __init__(self) -> None:
        super().__init__(*(nn.Sequential(nn.Linear(DENSE_WIDTH, DENSE_WIDTH), nn.ReLU()) for _ in range(DENSE_LAYERS)))


class BertLayer(nn.Module):
    """One layer of an encoder: attention and a feed-forward part, [N, L, W] to the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.mixed = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output."""
        rows, length, width = x.shape[0], x.shape[1], x.shape[2]
        shape = (rows, length, self.heads, width // self.heads)
        query, key, value = (part.reshape(shape).transpose(1, 2) for part in self.mixed(x).chunk(3, -1))
        weights = (query @ key.transpose(2, 3) / shape[-1] ** 0.5).softmax(-1)
        x = self.first(x + self.joined((weights @ value).transpose(1, 2).reshape(rows, length, width)))
        normed: Tensor = self.second(x + self.feed(x))
        return normed


class Bert(nn.Module):
    """INT64 [N, L] numbers of words to FP32 [N, L, width]."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(BERT_WORDS, width)
        self.positions = nn.Embedding(BERT_POSITIONS, width)
        self.layers = nn.Sequential(nn.LayerNorm(width), *(BertLayer(width, heads) for _ in range(layers)))

    def forward(self, words: Tensor) -> Tensor:
        """The last layer's output."""
        places = torch.arange(words.shape[1], device=words.device)
        encoded: Tensor = self.layers(self.words(words) + self.positions(places))
        return encoded


class BertTiny(Bert):
    """INT64 [1, 128] to FP32 [1, 128, 128]."""

    def __init__(self) -> None:
        super().__init__(width=128, heads=2, layers=2)


class BertBase(Bert):
    """INT64 [N, 128] to FP32 [N, 128, 768], for GPUs."""

    def __init__(self) -> None:
        super().__init__(width=768, heads=12, layers=12)


CLASSES: dict[str, type[nn.Module]] = {"resnet50": ResNet50, "dense": Dense, "bert_tiny": BertTiny}
MORE_CLASSES: dict[str, type[nn.Module]] = {"densenet121": DenseNet121, "bert_base": BertBase}


def make(network: str) -> nn.Module:
    """A network, ready to be called."""
    torch.manual_seed(SEED)
    return {**CLASSES, **MORE_CLASSES}[network]().eval()
