"""Run the yardstick's ``h2_server.py`` with a model whose shape is open: ``python grpc_sketch.py PORT DIR``.

The sketch's canned metadata declare 16 values and perf_analyzer sends what a model declares; the sketch itself takes
any number. Only the metadata are changed, what is measured is the sketch as it stands.
"""

from __future__ import annotations

import runpy
import sys

OPEN_SHAPE = [-1]


def main() -> None:
    """PORT DIR."""
    port, folder = sys.argv[1:]
    sys.path.insert(0, folder)
    import h2_metadata  # type: ignore[import-not-found]

    metadata, config = h2_metadata.M, h2_metadata.C.config
    for tensor in (*metadata.inputs, *metadata.outputs):
        tensor.shape[:] = OPEN_SHAPE
    for tensor in (*config.input, *config.output):
        tensor.dims[:] = OPEN_SHAPE
    for name, reply in h2_metadata.REPLIES.items():
        h2_metadata.BYTES[f"/inference.GRPCInferenceService/{name}".encode()] = reply.SerializeToString()
    sys.argv = [f"{folder}/h2_server.py", port]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
