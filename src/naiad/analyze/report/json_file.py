"""``report.json``: everything that the page shows, for programs."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any, Final

import orjson

from naiad.analyze.files import write_whole
from naiad.analyze.measurement import Measurement, to_plain
from naiad.analyze.rank.certainty import CERTAIN, probability
from naiad.analyze.report.csv_files import configs_of
from naiad.analyze.report.recommend import recommendations
from naiad.analyze.result import Analysis, ModelProfile
from naiad.version import __version__

SCHEMA: Final = "naiad-analyze-report"
SCHEMA_VERSION: Final = 1


def write_json(analysis: Analysis, file: Path) -> None:
    """Write the file.

    Raises:
        OSError: it cannot be written.
    """
    plain = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "naiad_version": __version__,
        "written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": list(analysis.command),
        "machine": dict(analysis.machine),
        "endpoint": analysis.endpoint,
        "mode": analysis.mode,
        "is_interrupted": analysis.is_interrupted,
        "failures": analysis.failures,
        "idle": dict(analysis.idle),
        "profiles": [_profile(analysis, profile) for profile in analysis.profiles],
        "model_sets": [
            {"models": one.names, "alone_p99_ms": one.alone_p99_ms, **to_plain(one.measured)} for one in analysis.sets
        ],
    }
    write_whole(file, orjson.dumps(plain, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_INDENT_2))


def _profile(analysis: Analysis, profile: ModelProfile) -> dict[str, Any]:
    judge, noise = profile.judge, profile.noise
    ranked = profile.ranked()
    return {
        "models": [subject.name for subject in profile.subjects if not subject.is_composing],
        "composing_models": [subject.name for subject in profile.subjects if subject.is_composing],
        "objectives": [dict(goal.objectives) for goal in judge.goals],
        "constraints": [[one.text for one in goal.constraints] for goal in judge.goals],
        "space_size": profile.space_size,
        "search_measurements": sum(len(profile.repeats[trial]) for trial in profile.searched),
        "measured": profile.measured,
        "reused": profile.reused,
        "seconds": profile.took_s,
        "noise_between_repeats": noise.between,
        "rows": [_row(analysis, profile, row) for row in judge.ranked(profile.rows)],
        "ranking": [analysis.name(row.trial) for row in ranked],
        "certainty": [
            {
                "better": analysis.name(first.trial),
                "worse": analysis.name(second.trial),
                "probability": (found := probability(first, second, noise)),
                "is_certain": found >= CERTAIN,
            }
            for first, second in itertools.pairwise(ranked)
        ],
        "recommendations": [
            {
                "title": one.title,
                "limit_ms": one.limit_ms,
                "configurations": analysis.names(one.row.trial),
                "configs": configs_of(analysis, one.row),
                **_row(analysis, profile, one.row),
            }
            for one in recommendations(profile)
        ],
    }


def _row(analysis: Analysis, profile: ModelProfile, row: Measurement) -> dict[str, Any]:
    judge = profile.judge
    return {
        "names": analysis.names(row.trial),
        "is_default": row.trial.is_default,
        "satisfies_constraints": judge.is_within(row),
        "broken_constraints": judge.broken(row),
        "gain": judge.gain(row),
        "throughput": row.throughput,
        "p99_ms": row.p99_ms,
        "repeats": len(profile.repeats.get(row.trial, ())),
        **to_plain(row),
    }
