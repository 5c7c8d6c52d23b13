"""Send the same rows to one network in three formats: python compare.py [host:port]"""

import sys

import numpy as np

from naiad.client import Client

NAMES = ("network_onnx", "network_pytorch", "network_openvino")


def main(url: str) -> None:
    rows = np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32)
    with Client(url) as client:
        results = {name: client.infer(name, {"x": rows})["y"] for name in NAMES}
    for name, result in results.items():
        largest = np.abs(result - results[NAMES[0]]).max()
        print(f"{name}: {'the same' if largest < 1e-4 else f'differs by {largest}'}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:8000")
