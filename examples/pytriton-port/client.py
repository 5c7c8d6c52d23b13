"""Asks both models of ``server.py``."""

from __future__ import annotations

import sys

import numpy as np

from naiad.pytriton.client import DecoupledModelClient, ModelClient


def main(http: str = "http://localhost:8000", grpc: str = "grpc://localhost:8001") -> None:
    """Print what the models respond."""
    a, b = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    with ModelClient(http, "Weigh") as client:
        found = client.infer_sample(a=a, b=b, scale=np.array([10], np.float32))
        print("add", found["add"].tolist(), "sub", found["sub"].tolist())
    with DecoupledModelClient(grpc, "CountDown") as streaming:
        numbers = [response["number"].item() for response in streaming.infer_sample(np.array([3], np.int32))]
        print("count", numbers)


if __name__ == "__main__":
    main(*sys.argv[1:])
