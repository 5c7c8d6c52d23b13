"""A PyTriton program on Naiad: only the imports have changed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from naiad.pytriton.decorators import batch, first_value
from naiad.pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from naiad.pytriton.triton import Triton, TritonConfig

Outputs = dict[str, np.ndarray]


@batch
@first_value("scale")
def weigh(a: np.ndarray, b: np.ndarray, scale: float) -> Outputs:
    """Add and subtract two vectors, times the scale of the request."""
    return {"add": scale * (a + b), "sub": scale * (a - b)}


@batch
def count_down(start: np.ndarray) -> Iterator[Outputs]:
    """Send a response for each number down to 1."""
    for number in range(int(start.max()), 0, -1):
        yield {"number": np.full_like(start, number)}


def bind(triton: Triton) -> None:
    """Bind both functions."""
    floats = [Tensor(name=name, dtype=np.float32, shape=(-1,)) for name in ("a", "b")]
    scale = Tensor(name="scale", dtype=np.float32, shape=(1,))
    triton.bind(
        model_name="Weigh",
        infer_func=weigh,
        inputs=[*floats, scale],
        outputs=[Tensor(name=name, dtype=np.float32, shape=(-1,)) for name in ("add", "sub")],
        config=ModelConfig(
            max_batch_size=64,
            batcher=DynamicBatcher(max_queue_delay_microseconds=500),
            # Naiad's own: a request gets its response, or an error, within two seconds.
            deadline_s=2,
        ),
        strict=True,
    )
    number = Tensor(dtype=np.int32, shape=(1,))
    triton.bind(
        model_name="CountDown",
        infer_func=count_down,
        inputs=[Tensor(name="start", dtype=number.dtype, shape=number.shape)],
        outputs=[Tensor(name="number", dtype=number.dtype, shape=number.shape)],
        config=ModelConfig(decoupled=True),
        strict=True,
    )


def main() -> None:
    """Serve until Ctrl-C."""
    with Triton(config=TritonConfig(http_address="127.0.0.1", grpc_address="127.0.0.1")) as triton:
        bind(triton)
        triton.serve()


if __name__ == "__main__":
    main()
