"""One to four instances of one network in the format of each framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..figures import CaseSkippedError, Figure
from ..formats.direct_caller import called_directly, write_files
from ..formats.form import Format
from ..formats.subjects import SUBJECTS
from ..formats.table import FORMATS
from ..models import add_model, instances, tensor_field
from ..settings import Settings
from .experiment import ExperimentRow, Known, measure

COUNTS = (1, 2, 3, 4)
CALLERS = 8
NETWORK = "dense"
# One for each framework.
COUNTED = ("onnx", "torchscript", "tensorflow", "openvino")
MAXIMUM_ROUNDS = 3


def instance_counts(settings: Settings) -> Iterator[Figure]:
    """The rate at eight callers by number of instances, of one thread each."""
    chosen = [form for form in FORMATS if form.name in COUNTED and not form.lacking()]
    if not chosen:
        raise CaseSkippedError(f"none of these is installed: {', '.join(COUNTED)}")
    settings = replace(settings, rounds=min(settings.rounds, MAXIMUM_ROUNDS))
    for form in chosen[:1] if settings.quick else chosen:
        rows = [ExperimentRow(str(count), f"dense_{count}", CALLERS) for count in COUNTS]

        def add_models(repository: Path, form: Format = form) -> Mapping[str, Known]:
            return _add_models(settings, repository, form)

        yield from measure(settings, f"field_counts_{form.name}", rows, add_models)


def _add_models(settings: Settings, repository: Path, form: Format) -> Mapping[str, Known]:
    folder = settings.work / f"counted-{form.name}"
    folder.mkdir()
    file = folder / form.file
    write_files([(form, NETWORK, file)])
    (subject,) = (subject for subject in SUBJECTS if subject.name == NETWORK)
    source, target = form.tensors
    sample = subject.sample(form)
    with called_directly(form, NETWORK, file, 1, settings.work) as direct:
        known = Known({source: sample}, target, np.asarray(direct.answer))
    for count in COUNTS:
        version = add_model(
            repository,
            f"dense_{count}",
            f'backend: "{form.backend}"',
            f'default_model_filename: "{form.file}"',
            "max_batch_size: 0",
            tensor_field("input", source, "TYPE_FP32", sample.shape),
            tensor_field("output", target, "TYPE_FP32", subject.output),
            instances(count, 1, form.threads),
            form.fields(NETWORK),
        )
        version.rmdir()
        version.symlink_to(folder, target_is_directory=True)
    return {f"dense_{count}": known for count in COUNTS}
