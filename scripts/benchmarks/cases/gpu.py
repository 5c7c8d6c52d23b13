"""Networks on a GPU: the rate through the server over that of the framework's own loop, at the same batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from naiad.gpus.driver import gpus

from ..figures import Bound, CaseError, CaseSkippedError, Figure
from ..formats.direct_caller import called_directly, write_files
from ..formats.form import Format
from ..formats.gpu_files import GPU_FORMATS, GPU_SUBJECTS, ROWS
from ..formats.served import MODEL_TYPES, Served, served
from ..formats.subjects import Subject
from ..infer import HEADER_LENGTH, Array, ask_well, read_outputs
from ..models import add_model, tensor_field
from ..rounds import alternate, median, median_ratio
from ..settings import Settings

LEAST = 0.97
CALLERS = 4
MINIMUM_CALLS = 10
# Half precision, and another order of the sums.
FARTHEST = 0.05


def measure(settings: Settings) -> Iterator[Figure]:
    """Figures of each network in each format whose framework is here."""
    if not gpus():
        raise CaseSkippedError("there is no NVIDIA GPU that works")
    lacking = {form.name: form.lacking() for form in GPU_FORMATS}
    chosen = [form for form in GPU_FORMATS if not lacking[form.name]]
    left_out = [f"{name} is left out: there is no {module}" for name, module in lacking.items() if module]
    if not chosen:
        raise CaseSkippedError("; ".join(left_out))
    print("\n".join((*map(str, gpus()), *left_out)), flush=True)
    for subject in GPU_SUBJECTS[:1] if settings.quick else GPU_SUBJECTS:
        for form in chosen:
            try:
                yield from compare(settings, form, subject)
            except CaseError as error:
                # The other formats are worth their figures all the same.
                print(f"{subject.name} as {form.name} failed: {error}", flush=True)


def compare(settings: Settings, form: Format, subject: Subject) -> Iterator[Figure]:
    """The figures of one network in one format."""
    folder = settings.work / "gpu" / f"{subject.name}-{form.name}"
    folder.mkdir(parents=True)
    file = folder / form.file
    write_files([(form, subject.name, file)])
    repository = add_on_gpu(settings, form, subject, file)
    with ExitStack() as stack:
        direct = stack.enter_context(called_directly(form, subject.name, file, 1, settings.work))
        side = stack.enter_context(served(repository, settings.work, form, subject))
        check(answer(side), direct.answer)
        requests = max(MINIMUM_CALLS, round(direct.call(settings.seconds / 4).rate * settings.seconds))
        side.call(CALLERS, MINIMUM_CALLS)
        rates = alternate(
            settings.rounds,
            {
                "served": lambda: side.call(CALLERS, requests).rate,
                "direct": lambda: direct.call(settings.seconds).rate,
            },
        )
    name = f"gpu_{subject.name}_{form.name}"
    note = f"batches of {ROWS}, callers: {CALLERS}, instances: 1"
    yield Figure(f"{name}_direct", median(rates["direct"], float), "batches/s", note="the framework's own loop")
    yield Figure(f"{name}_served", median(rates["served"], float), "batches/s", note=note)
    ratio = median_ratio(rates["served"], rates["direct"], float)
    yield Figure(f"{name}_ratio", ratio, "of direct", Bound(">=", LEAST), note="pair by pair")


def add_on_gpu(settings: Settings, form: Format, subject: Subject, file: Path) -> Path:
    """A repository with the network, one instance of it on the first GPU."""
    repository = settings.work / "gpu" / f"served-{subject.name}-{form.name}"
    sample = subject.sample(form)
    version = add_model(
        repository,
        subject.name,
        f'backend: "{form.backend}"',
        f'default_model_filename: "{form.file}"',
        "max_batch_size: 0",
        tensor_field("input", "x", MODEL_TYPES[sample.dtype.name], sample.shape),
        tensor_field("output", "y", "TYPE_FP32", subject.output),
        "instance_group [ { kind: KIND_GPU count: 1 gpus: [ 0 ] } ]",
    )
    version.rmdir()
    version.symlink_to(file.parent, target_is_directory=True)
    return repository


def answer(side: Served) -> Array:
    """What the server answers."""
    headers, body = ask_well(side.server.port, side.request)
    return read_outputs(body, int(headers[HEADER_LENGTH.lower()]))["y"]


def check(found: Array, expected: Array) -> None:
    """Raise ``CaseError`` when the server and the framework answer differently."""
    difference = float(np.abs(found - expected).max() / max(1e-9, float(np.abs(expected).max())))
    if found.shape != expected.shape or not difference <= FARTHEST:
        raise CaseError(f"the answer through the server is {difference:.3g} from the framework's own")
