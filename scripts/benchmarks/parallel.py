"""How much more the cores of this machine calculate all at once than one alone: what no server can exceed."""

from __future__ import annotations

import subprocess
import sys

# Python that touches little memory. Cores that share a physical one, or slow down when all are busy, show here.
_COUNT = """
import sys, time
end = time.perf_counter() + float(sys.argv[1])
rounds = 0
while time.perf_counter() < end:
    for number in range(10_000):
        str(number)
    rounds += 1
print(rounds)
"""


def speedup(processes: int, seconds: float) -> float:
    """The work that ``processes`` do at the same time, as a multiple of what one of them does alone."""
    return _work(processes, seconds) / _work(1, seconds)


def _work(processes: int, seconds: float) -> int:
    command = [sys.executable, "-c", _COUNT, str(seconds)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return sum(int(process.communicate()[0]) for process in running)
