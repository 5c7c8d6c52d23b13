"""The rate of a published model, by ``naiad perf`` as its user would measure it."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

from naiad.convert.run import Converter

from .. import servers
from ..figures import CaseError
from ..perf_analyzer import NAIAD_PERF

TIMEOUT_SECONDS = 180


def rate_in_process(converter: Converter, work: Path) -> float:
    """Inferences a second without a network, at the batch that the report names."""
    repository = Path(converter.conversion.published).parent
    return _rate(converter, work, ["--service-kind=in_process", f"--model-repository={repository}"])


def rate_over_http(converter: Converter, work: Path) -> float:
    """The same, of a server that is asked over HTTP."""
    repository = Path(converter.conversion.published).parent
    with servers.naiad(repository, work) as server:
        return _rate(converter, work, ["-u", f"127.0.0.1:{server.port}"])


def reported_rate(converter: Converter) -> float:
    """What the conversion's report says."""
    measured = converter.chosen.measured
    return measured.best.rate if measured else 0.0


def _rate(converter: Converter, work: Path, words: list[str]) -> float:
    chosen = converter.chosen
    if chosen.measured is None:
        raise CaseError(f"{chosen.target} was chosen and not measured")
    report = work / "published.csv"
    data = converter.settings.work / chosen.target / "measure" / "input.json"
    command = [*NAIAD_PERF, "-m", converter.conversion.name, *words, "--concurrency-range=1", f"--input-data={data}"]
    command += ["-p", "1000", "-s", "10", "-f", str(report)]
    command += ["-b", str(chosen.measured.best.batch)] if converter.signature.is_batching else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    if done.returncode:
        raise CaseError(f"naiad perf ended with {done.returncode}: {(done.stderr or done.stdout)[-500:]}")
    with report.open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    return float(row["Inferences/Second"])
