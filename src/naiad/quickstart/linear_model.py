"""``linear_model``: 1000 chained linear layers of one neuron, as TorchScript: calls cost more than arithmetic."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Final

from naiad.quickstart.example_model import TORCH, ExampleModel, tensor_request, tensors

LAYERS: Final = 1000
_SEED: Final = 3
# Near 1, so that a thousand of them neither vanish nor overflow.
_SPREAD: Final = 0.01


def _write(folder: Path) -> None:
    import torch

    random = torch.Generator().manual_seed(_SEED)
    chain = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(LAYERS))).eval()
    with torch.no_grad():
        for layer in chain:
            layer.weight.copy_(1 + _SPREAD * torch.randn(1, 1, generator=random))
            layer.bias.copy_(_SPREAD * torch.randn(1, generator=random))
    # torch's own writer of files ends the process when the disk is full.
    packed = io.BytesIO()
    with warnings.catch_warnings():
        # PyTorch recommends torch.export, but the tutorials have TorchScript.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.trace(chain, torch.zeros(1, 1)), packed)
    (folder / "model.pt").write_bytes(packed.getbuffer())


LINEAR_MODEL: Final = ExampleModel(
    "linear_model",
    f"{LAYERS} chained layers of one neuron (TorchScript), not batched yet",
    'name: "linear_model"\nplatform: "pytorch_libtorch"\nmax_batch_size: 32\n'
    + tensors("input", "FP32", [1], "INPUT")
    + tensors("output", "FP32", [1], "OUTPUT")
    + "instance_group [ { count: 1 kind: KIND_CPU } ]\n",
    _write,
    (TORCH,),
    request=tensor_request(INPUT=("FP32", [1, 1], [0.5])),
)
