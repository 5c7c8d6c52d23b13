"""What earlier runs have measured: files that are numbered, of which the last one counts."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from naiad.analyze.errors import AnalyzeError
from naiad.analyze.files import write_whole
from naiad.analyze.measurement import Measurement, from_plain, to_plain
from naiad.analyze.trial import AnalysisTrial

SCHEMA: Final = "naiad-analyze-checkpoint"
VERSION: Final = 1
_NAME: Final = re.compile(r"(\d+)\.ckpt")


@dataclass(slots=True)
class Checkpoint:
    """Everything that is kept.

    Attributes:
        measurements: in the order in which they were made, under what describes how requests are made.
        names: of variants, by model and changes.
        configs: the configurations of the repository, by model.
        idle: what the server was busy with before anything was measured.
    """

    measurements: list[tuple[str, Measurement]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    configs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    idle: dict[str, Any] = field(default_factory=dict)

    def name(self, model: str, changes_json: str) -> str:
        """The name of a variant: ``add_config_default``, ``add_config_0`` and so on, as they come."""
        key = f"{model} {changes_json}"
        if key not in self.names:
            if changes_json == "{}":
                self.names[key] = f"{model}_config_default"
            else:
                number = sum(1 for other in self.names if other.startswith(f"{model} ") and not other.endswith(" {}"))
                self.names[key] = f"{model}_config_{number}"
        return self.names[key]

    def names_of(self, trial: AnalysisTrial) -> list[str]:
        """The names of a trial's configurations, those of the models under load first.

        An ensemble has another one for each combination of its steps' configurations, as in the reference.
        """
        composing = [self.name(variant.model, variant.changes_json) for variant in trial.composing]
        loaded = []
        for variant in trial.variants:
            key = variant.changes_json
            if "ensemble_scheduling" in self.configs.get(variant.model, {}) and not trial.is_default:
                key += f" {','.join(composing)}"
            loaded.append(self.name(variant.model, key))
        return loaded + composing


class MeasurementPool:
    """Measurements that may be used again, each of them once."""

    def __init__(self, found: Sequence[tuple[str, Measurement]], digest: str) -> None:
        self._by_key: dict[str, list[Measurement]] = defaultdict(list)
        for one, measured in found:
            # Failures are tried again: their cause may be gone.
            if one == digest and not measured.error:
                self._by_key[measured.trial.key].append(measured)
        self.reusable = sum(map(len, self._by_key.values()))

    def take(self, key: str, window_ms: int) -> Measurement | None:
        """A measurement of a trial with windows of such a length at least."""
        for measured in self._by_key.get(key, ()):
            if measured.window_ms >= window_ms:
                self._by_key[key].remove(measured)
                return measured
        return None


def digest_of(values: Mapping[str, Any]) -> str:
    """A short text for what measurements depend on beside their trials."""
    text = orjson.dumps(values, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.sha256(text).hexdigest()[:16]


def latest(folder: Path) -> Path | None:
    """The file with the greatest number."""
    found = [(int(match[1]), file) for file in folder.glob("*.ckpt") if (match := _NAME.fullmatch(file.name))]
    return max(found, default=(0, None))[1]


def next_file(folder: Path) -> Path:
    """The file that a new run writes."""
    last = latest(folder)
    return folder / f"{int(last.stem) + 1 if last is not None else 0}.ckpt"


def read_checkpoint(file: Path) -> Checkpoint:
    """Read a file.

    Raises:
        AnalyzeError: it cannot be read, or is none.
    """
    try:
        plain = orjson.loads(file.read_bytes())
    except OSError as error:
        raise AnalyzeError(f"cannot read the checkpoint '{file}': {error.strerror or error}") from None
    except orjson.JSONDecodeError as error:
        raise AnalyzeError(f"'{file}' is no checkpoint: {error}; move it away to measure anew") from None
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        raise AnalyzeError(
            f"'{file}' is no checkpoint of naiad analyze (the reference writes files of the same name): move it away, "
            "or name another checkpoint_directory"
        )
    if plain.get("version") != VERSION:
        raise AnalyzeError(f"'{file}' has version {plain.get('version')!r}, this naiad reads {VERSION}: move it away")
    try:
        measurements = [(digest, from_plain(one)) for digest, one in plain["measurements"]]
        return Checkpoint(measurements, dict(plain["names"]), dict(plain["configs"]), dict(plain["idle"]))
    except (ValueError, LookupError, TypeError) as error:
        raise AnalyzeError(f"'{file}' is damaged ({error!r}): move it away to measure anew") from None


def write_checkpoint(checkpoint: Checkpoint, file: Path) -> None:
    """Write a file as a whole: whoever stops the run finds the one before or this one.

    Raises:
        OSError: it cannot be written.
    """
    plain = {
        "schema": SCHEMA,
        "version": VERSION,
        "names": checkpoint.names,
        "configs": checkpoint.configs,
        "idle": checkpoint.idle,
        "measurements": [[digest, to_plain(measured)] for digest, measured in checkpoint.measurements],
    }
    write_whole(file, orjson.dumps(plain))
