"""The same networks in the formats of all installed frameworks. What they have to answer the framework alone says."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.formats.direct_caller import called_directly, write_files
from benchmarks.formats.form import Format
from benchmarks.formats.served import add_served
from benchmarks.formats.subjects import SUBJECTS, Subject
from benchmarks.formats.table import FORMATS
from benchmarks.models import Array

from .callers import Caller, Checked, UnaryCaller
from .targets import Target, execution

NETWORKS = ("dense", "trees")
"""Small ones; the first is written in every format but those of trees."""
WAYS = ("thread", "process", "shared")
"""Where frameworks run, in turns."""
THREADS = 1


def framework_targets(work: Path) -> list[Target]:
    """A target for each format of each network; files are written into ``work``."""
    subjects = [subject for subject in SUBJECTS if subject.name in NETWORKS]
    pairs = [(form, subject) for subject in subjects for form in FORMATS if subject.name in form.networks]
    ways = (WAYS[number % len(WAYS)] for number in range(len(pairs)))
    return list(_targets(work, pairs, ways))


def _targets(work: Path, pairs: list[tuple[Format, Subject]], ways: Iterator[str]) -> Iterator[Target]:
    for (form, subject), way in zip(pairs, ways, strict=True):
        name = f"{subject.name}_{form.name}"
        answers: list[Array] = []
        write = partial(_write, name, form, subject, work, way, answers)
        yield Target(name, write, partial(_caller, name, form, subject, answers), needs=form.needs)


def _write(
    name: str, form: Format, subject: Subject, work: Path, way: str, answers: list[Array], repository: Path
) -> None:
    """Write one network, serve it, and note what its framework answers."""
    file = work / name / form.file
    file.parent.mkdir(parents=True)
    write_files([(form, subject.name, file)])
    with called_directly(form, subject.name, file, THREADS, work) as direct:
        answers.append(direct.answer)
    add_served(repository, form, subject, file, THREADS, execution(way), name=name)


def _caller(name: str, form: Format, subject: Subject, answers: list[Array], random: np.random.Generator) -> Caller:
    source, target = form.tensors
    sample = subject.sample(form)

    def next_request() -> Checked:
        return {source: sample}, target, answers[0]

    return UnaryCaller(name, next_request)
