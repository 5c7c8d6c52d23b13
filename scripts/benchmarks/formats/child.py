"""What frameworks do in processes of their own: networks are written, and called without a server.

``python -m benchmarks.formats.child write FORMAT:NETWORK:PATH ...`` writes files. ``call FORMAT NETWORK PATH THREADS
ANSWER`` instead loads a network, calls it once, writes what it answered to ANSWER and prints one JSON line. After that
it calls for as many seconds as each line of its input says, and prints one JSON line for each.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from ..direct import time_calls
from .gpu_files import GPU_FORMATS, GPU_SUBJECTS
from .subjects import SUBJECTS
from .table import FORMATS

BY_NAME = {form.name: form for form in (*FORMATS, *GPU_FORMATS)}


def write(orders: list[str]) -> None:
    """Write each network."""
    for order in orders:
        name, network, path = order.split(":", 2)
        BY_NAME[name].write(network, Path(path))


def call(name: str, network: str, path: str, threads: str, answer: str) -> None:
    """Load one network and call it as the input says."""
    form = BY_NAME[name]
    subjects = GPU_SUBJECTS if form in GPU_FORMATS else SUBJECTS
    (sample,) = (subject.sample(form) for subject in subjects if subject.name == network)
    began = time.perf_counter()
    caller = form.load(Path(path), int(threads))
    loaded = time.perf_counter()
    first = caller(sample)
    answered = time.perf_counter()
    np.save(answer, first)
    print(json.dumps({"load_s": loaded - began, "first_s": answered - loaded}), flush=True)
    for line in sys.stdin:
        print(json.dumps(time_calls(lambda: caller(sample), float(line))), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2:])
    else:
        call(*sys.argv[2:])
