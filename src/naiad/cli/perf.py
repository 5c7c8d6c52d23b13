"""``naiad perf``: reads the options, measures, and prints the report."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from naiad.perf.options import EXIT_CODE, PerfOptionError, parse_perf, usage, wants_help, wants_version
from naiad.version import __version__

FAILED: Final = 99
"""What the process returns when the measurement failed: the reference's ``GENERIC_ERROR``."""


def perf(argv: Sequence[str]) -> int:
    """Measure a model's rate and latencies; returns the exit code."""
    if wants_help(argv):
        print(usage(), end="")
        return 0
    if wants_version(argv):
        print(f"naiad perf {__version__}")
        return 0
    try:
        settings = parse_perf(argv, os.environ)
    except PerfOptionError as error:
        print(f"{error}\nRun 'naiad perf --help' for the options.", file=sys.stderr)
        return EXIT_CODE
    for text in settings.warnings:
        print(f"warning: {text}", file=sys.stderr)
    from naiad.perf.input.error import PerfInputError
    from naiad.perf.run import PerfRun
    from naiad.perf.target.protocol import TargetError

    run = PerfRun(settings, None, argv)
    failure = ""
    try:
        run.run()
    except (TargetError, PerfInputError) as error:
        failure = str(error)
    for level in run.report.levels:
        merged = level.merged
        print(
            f"{level.level.mode} {level.level.value:g}: {level.inference_rate:.1f} infer/s, mean"
            f" {merged.latency.mean / 1e3:.0f} us, p50 {merged.latency.percentile(50) / 1e3:.0f} us, p99"
            f" {merged.latency.percentile(99) / 1e3:.0f} us; client {merged.client.cpu_cores:.2f} cores,"
            f" {merged.client.cpu_us_per_request:.1f} us/request; server {merged.usage.cpu_cores} cores;"
            f" {level.unstable_reason or 'stable'}; errors {dict(merged.errors)} {level.notes}"
        )
    failure = failure or run.failure
    if failure:
        print(f"error: {failure}", file=sys.stderr)
        return FAILED
    return 0
