"""``naiad check``: all problems of models, found by the same steps that load them in a server."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from naiad.backend_api.host_policy import NO_POLICIES, HostPolicies
from naiad.cli.check_ensembles import CheckedModels, circular, in_order, is_made_of_others
from naiad.config.export import config_pbtxt
from naiad.config.problems import ConfigProblemsError
from naiad.config.read import ReadConfig
from naiad.config.resolve import prepare, problems
from naiad.config.source import ModelSource
from naiad.engine.engine import Engine
from naiad.errors import ConfigError, NaiadError
from naiad.execution.worker.process import FULL_TRACEBACK
from naiad.gpus.access import ANY_GPU, GpuAccess
from naiad.lifecycle.loading.load_version import LoadSettings, start_backend
from naiad.lifecycle.loading.warmup_samples import configured_samples
from naiad.lifecycle.state.candidate import Candidate
from naiad.options.remote_uri import RemoteUri
from naiad.repository.agents.agents import AgentDirectory
from naiad.repository.agents.mirror import AgentMirror
from naiad.repository.catalog import Outline, open_catalog
from naiad.telemetry.logs.terminal import is_terminal, wants_colours

if TYPE_CHECKING:
    from naiad.repository.remote.repository import RemoteModel

logger = logging.getLogger("naiad")

SLOW_S = 5.0
"""After this time a load is worth a line."""
_GREEN, _RED, _PLAIN = "\x1b[32m", "\x1b[1;31m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class ModelReport:
    """The report on one model: its problems as lines, or its completed configuration as config.pbtxt.

    ``notes`` list the checks that were skipped, and advice.
    """

    name: str
    versions: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    pbtxt: str = ""


def run(
    paths: Sequence[Path | RemoteUri],
    *,
    disable_auto_complete: bool,
    model_config_name: str,
    gpu_fallback: bool = False,
    backend_config: Mapping[str, Mapping[str, str]],
    repoagent_directory: str = "",
    policies: HostPolicies = NO_POLICIES,
    gpus: GpuAccess = ANY_GPU,
    mirror: str = "",
    mirror_size: int = 0,
) -> int:
    """Check every model of ``paths`` and print the reports.

    ``paths`` are repositories, folders of one model, model files and addresses.

    Each version that a server would load is loaded into its framework once, and released.

    Args:
        gpu_fallback: ``--gpu-fallback=cpu``.
        backend_config: ``--backend-config`` settings by backend, those of all backends under "".
        repoagent_directory: the folder of repository agents.
        policies: ``--host-policy``.
        gpus: those that models may use.
        mirror: ``--model-repository-mirror``; like ``mirror_size`` it applies to addresses and to models of MLflow.

    Returns:
        The exit code: 0 when every model would load, 1 when there is any problem.
    """
    settings = LoadSettings(
        lambda backend: {**backend_config.get("", {}), **backend_config.get(backend, {})},
        auto_complete=not disable_auto_complete,
        model_config_name=model_config_name,
        gpu_fallback=gpu_fallback,
        agents=AgentDirectory(Path(repoagent_directory), mirror=AgentMirror(mirror, mirror_size)),
        policies=policies,
        gpus=gpus,
    )
    with ExitStack() as stack:
        stack.enter_context(_shown_warnings())
        try:
            catalog = open_catalog((), paths, mirror, mirror_size)
            stack.callback(catalog.close)
            outline = catalog.outline(is_whole=True)
        except NaiadError as error:
            print(f"error: {error}")
            return 1
        return _print_all(outline, settings, paths)


@contextmanager
def _shown_warnings() -> Iterator[None]:
    """Print warnings and errors of the log, except tracebacks, which the report has."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("warning: %(message)s"))
    handler.addFilter(lambda record: not hasattr(record, FULL_TRACEBACK))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _print_all(outline: Outline, settings: LoadSettings, paths: Sequence[Path | RemoteUri]) -> int:
    for problem in outline.local.problems:
        if not problem.fatal:
            print(f"warning: {problem.located()}\n")
    reports = []
    for report in _reports(outline, settings):
        # At once: the loads of the models that follow may take long.
        _print_report(report)
        reports.append(report)
    return _print_summary(reports, paths)


def _reports(outline: Outline, settings: LoadSettings) -> Iterator[ModelReport]:
    refused: dict[str, list[str]] = {}
    for problem in outline.local.problems:
        if problem.fatal:
            refused.setdefault(problem.model, []).append(problem.message)
    yield from (ModelReport(name, problems=tuple(lines)) for name, lines in refused.items())
    for name in outline.unavailable.keys() - refused.keys():
        yield ModelReport(name, problems=(outline.unavailable[name],))
    checked = CheckedModels()
    for name in refused.keys() | outline.unavailable.keys():
        # Also the failing models are noted: an ensemble then says that its member has problems, not that it is unknown.
        checked.note(name)
    # Ensembles come last: their graphs need the specifications of their members.
    ensembles: list[Candidate] = []
    for model in outline.models.values():
        checked.note(model.name)
        try:
            found = _candidate(model, settings)
        except NaiadError as error:
            yield ModelReport(model.name, problems=tuple(_lines(error)))
            continue
        if is_made_of_others(found):
            ensembles.append(found)
        else:
            yield _try_load(found, settings, checked)
    ordered, circles = in_order(ensembles)
    for found in ordered:
        yield _try_load(found, settings, checked)
    for found in circles:
        yield ModelReport(found.source.name, problems=tuple(_lines(circular(found.source.name))))


def _candidate(model: ModelSource | RemoteModel, settings: LoadSettings) -> Candidate:
    finder = settings.finder
    return finder.candidate(model) if isinstance(model, ModelSource) else finder.fetched(model)


@contextmanager
def _progress_of(name: str) -> Iterator[None]:
    """Print now and then that a model is still being loaded: some are compiled, which takes a minute."""
    is_over = Event()
    thread = Thread(target=_print_progress, args=(name, is_over), name="naiad-still-loading", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _print_progress(name: str, is_over: Event) -> None:
    waited_s, pause_s = 0.0, SLOW_S
    while not is_over.wait(pause_s):
        waited_s += pause_s
        pause_s *= 2
        print(f"still loading: {name}, for {waited_s:.0f} s now", file=sys.stderr, flush=True)


def _try_load(found: Candidate, settings: LoadSettings, checked: CheckedModels) -> ModelReport:
    """Load every version of a model that a server would load, and release it."""
    with _progress_of(found.source.name):
        report = _report(found, settings, checked)
    if found.folder is not None:
        found.folder.tried(not report.problems)
    return report


def _report(found: Candidate, settings: LoadSettings, checked: CheckedModels) -> ModelReport:
    wrong: dict[str, None] = {}
    notes: dict[str, None] = {}
    pbtxt = ""
    for version in found.versions:
        config, lines, note = _check_version(found, version, settings, checked)
        prefix = f"version {version}: " if len(found.versions) > 1 else ""
        # A problem of the configuration is the same in every version and is reported once.
        wrong.update((line if is_config else prefix + line, None) for is_config, line in lines)
        if note:
            notes[prefix + note] = None
        pbtxt = pbtxt or ("" if config is None else config_pbtxt(config))
    return ModelReport(found.source.name, found.versions, tuple(wrong), tuple(notes), "" if wrong else pbtxt)


def _check_version(
    found: Candidate, version: int, settings: LoadSettings, checked: CheckedModels
) -> tuple[Any, list[tuple[bool, str]], str]:
    """The completed configuration, or None; the problems, each with whether the configuration causes it; and the
    skipped checks.
    """
    source, read = found.source, found.read
    try:
        if is_made_of_others(found):
            return checked.check_ensemble(found, version), [], ""
        prepared, backend, spec = start_backend(source, version, read, settings)
    except NaiadError as error:
        lines = [(isinstance(error, ConfigError), line) for line in _lines(error)]
        if not isinstance(error, ConfigProblemsError):
            lines += [(True, line) for line in _static_problems(source, version, read, settings)]
        return None, lines, ""
    try:
        skipped, advice = backend.try_out(), backend.advice()
    except NaiadError as error:
        return None, [(False, line) for line in _lines(error)], ""
    finally:
        backend.close()
    try:
        # After the close: samples are checked against the specification and need no memory of the model.
        configured_samples(spec, source.folder(version), Engine.check)
    except NaiadError as error:
        return None, [(True, str(error))], ""
    checked.keep(source.name, version, spec)
    note = f"not tried: {skipped}" if skipped else f"advice: {advice}" if advice else ""
    return prepared.config, [], note


def _static_problems(source: ModelSource, version: int, read: ReadConfig, settings: LoadSettings) -> list[str]:
    """The problems that are found without the backend, when the backend failed first."""
    try:
        prepared = prepare(source, version, read=read, gpus=settings.gpus.usable)
    except ConfigError:
        return []
    if prepared.config.max_batch_size == 0:
        # The backend might still have set the size that these are compared with.
        prepared.config.dynamic_batching.ClearField("preferred_batch_size")
    return [problem.located() for problem in problems(prepared)]


def _lines(error: NaiadError) -> list[str]:
    if isinstance(error, ConfigProblemsError):
        return [problem.located() for problem in error.problems]
    return [error.located() if isinstance(error, ConfigError) else str(error)]


def _print_report(report: ModelReport) -> None:
    if not report.problems:
        versions = ", ".join(map(str, report.versions))
        print(f"{report.name}: {_coloured('ok', _GREEN)} (version{'s' if len(report.versions) > 1 else ''} {versions})")
        _print_notes(report)
        print(_indented(report.pbtxt))
        return
    print(f"{report.name}: {_coloured(_count(len(report.problems), 'problem'), _RED)}")
    for problem in report.problems:
        print(_indented(problem))
    _print_notes(report)
    print()


def _print_notes(report: ModelReport) -> None:
    for note in report.notes:
        print(_indented(note))


def _print_summary(reports: Sequence[ModelReport], paths: Sequence[Path | RemoteUri]) -> int:
    failed = sum(1 for report in reports if report.problems)
    if not reports:
        where = ", ".join(f"'{path}'" for path in paths)
        print(f"no models found in {where}, expected a folder for each model, such as double/1/model.onnx")
        return 1
    total = sum(len(report.problems) for report in reports)
    text = f"{_count(len(reports), 'model')} checked: {len(reports) - failed} ok, {failed} with problems"
    print(f"{text} ({_count(total, 'problem')})" if failed else text)
    return 1 if failed else 0


def _coloured(text: str, colour: str) -> str:
    return f"{colour}{text}{_PLAIN}" if is_terminal(sys.stdout) and wants_colours(os.environ) else text


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.split("\n"))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
