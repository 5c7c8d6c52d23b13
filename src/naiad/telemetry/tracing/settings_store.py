"""The selection of traced requests: the settings of all models and of single models, and their samplers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from naiad.errors import InvalidArgumentError, UnavailableError, UnsupportedError
from naiad.options.trace_config import (
    OPENTELEMETRY,
    TENSORS,
    TENSORS_IN_FILES,
    TIMESTAMPS,
    TRITON,
    trace_levels,
    trace_mode,
)
from naiad.telemetry.tracing.file_writer import TraceWriter
from naiad.telemetry.tracing.settings import Changes, TraceSettings
from naiad.telemetry.tracing.trace import Trace, TraceOutput, TraceSink

if TYPE_CHECKING:
    from naiad.options import ServerOptions

MAX_MODELS: Final = 256
"""Models that may have settings of their own, each with a file that is open."""

_ALL: Final = ""
"""The scope of the settings that hold for every model without settings of its own."""


class Sampler:
    """Chooses the requests of one scope that are traced: one of ``trace_rate``, and ``trace_count`` at most.

    Attributes:
        remaining: the number of requests that are still to be traced; -1 for any number.
        takes_parents: requests of a caller that traces are traced as well, without being counted.
        timestamps, tensors: the parts of a trace.
    """

    __slots__ = (
        "_ids", "_left", "_output", "_rate", "_spent", "_writer", "remaining", "takes_parents", "tensors", "timestamps",
    )  # fmt: skip

    def __init__(
        self, settings: TraceSettings, writer: TraceSink, ids: Iterator[int], spent: Callable[[], None]
    ) -> None:
        self._rate = self._left = settings.trace_rate
        self.remaining = settings.trace_count
        self.takes_parents = writer.takes_parents
        self.timestamps = TIMESTAMPS in settings.trace_level
        self.tensors = TENSORS in settings.trace_level
        # Without a frequency, a limited count of traces fills one numbered file.
        self._output = TraceOutput(settings.log_frequency or max(0, settings.trace_count))
        self._writer = writer
        self._ids = ids
        self._spent = spent

    def passes_over(self) -> bool:
        """Count a request that need not be traced; False, without counting, when the next request has to be traced."""
        if self._left <= 1:
            return not self._rate
        self._left -= 1
        return True

    def passes_over_all(self, requests: int) -> bool:
        """Count so many requests; False, without counting, when one of them has to be traced, or when any of them may
        continue its caller's trace."""
        if self._left <= requests or self.takes_parents:
            return False
        self._left -= requests
        return True

    def take(self) -> int:
        """Count a request; its trace's id, or 0 when it is not traced."""
        if self.passes_over() or not self.remaining:
            return 0
        self._left = self._rate
        if self.remaining > 0:
            self.remaining -= 1
        # Ids follow the order of the responses: a request that is not traced costs nothing before its response.
        return next(self._ids)

    def take_in(self) -> int:
        """The trace's id of a request that belongs to a trace of its caller."""
        return next(self._ids)

    def put(self, trace: Trace) -> None:
        """Store the trace of a request that ``take`` or ``take_in`` chose."""
        self._writer.put(self._output, trace)
        # The count is used up: the models drop their tracers, so that further requests pay nothing for them.
        if not (self.remaining or self.takes_parents):
            self.finish()
            self._spent()

    def finish(self) -> None:
        """Complete the file of the traces: no more will come."""
        self._writer.put(self._output, None)


class Tracing:
    """The trace settings of a server. Used on the event loop only.

    Args:
        start: the settings at the start, which are also those of a cleared setting.
        sink: the destination of traces; without one no level can be set.

    Attributes:
        when_changed: called when ``sampler`` may return another sampler for any model.
    """

    def __init__(self, start: TraceSettings | None = None, sink: TraceSink | None = None) -> None:
        self._start = start or TraceSettings()
        self._writer = sink
        self._settings: dict[str, TraceSettings] = {_ALL: self._start}
        self._own: dict[str, dict[str, Any]] = {}
        self._samplers: dict[str, Sampler] = {}
        self._ids = count(1)
        self.when_changed: Callable[[], None] = lambda: None
        self._update_sampler(_ALL)

    @classmethod
    def from_options(cls, options: ServerOptions) -> Tracing:
        """The settings of ``--trace-config``."""
        names = {item.name for item in fields(TraceSettings)}
        given: dict[str, Any] = {item.name: item.value for item in options.trace_config if item.name in names}
        levels = [str(item.value) for item in options.trace_config if item.name == "trace_level"]
        settings = TraceSettings(**(given | {"trace_level": trace_levels(tuple(dict.fromkeys(levels)))}))
        return cls(settings, _sink(options))

    def problem(self) -> str:
        """Why traces cannot be stored; "" when they can."""
        return self._writer.problem() if self._writer is not None else ""

    def shown(self, model: str) -> dict[str, str | list[str]]:
        """The settings that hold for a model, or with "" for all others, as the protocol shows them."""
        scope = model if model in self._own else _ALL
        settings, sampler = self._settings[scope], self._samplers.get(scope)
        mode = TRITON if self._writer is None else self._writer.mode
        shown: dict[str, str | list[str]] = {
            "trace_level": list(settings.trace_level),
            "trace_rate": str(settings.trace_rate),
            "trace_count": str(settings.trace_count if sampler is None else sampler.remaining),
        }
        if mode == TRITON:
            shown |= {"log_frequency": str(settings.log_frequency), "trace_file": ""}
        if self._writer is not None:
            shown.update(self._writer.shown())
        shown["trace_mode"] = mode
        return shown

    def sampler(self, model: str) -> Sampler | None:
        """The sampler of a model's requests; None when none is traced."""
        found = self._samplers.get(model if model in self._own else _ALL)
        return found if found is not None and (found.remaining or found.takes_parents) else None

    def change(self, model: str, changes: Changes) -> None:
        """Change the settings of a model, or with "" those of all models that have none of their own.

        Raises:
            InvalidArgumentError: a level without a file.
            UnsupportedError: the destination of the traces does not store that level.
            UnavailableError: too many models have settings of their own.
        """
        # A copy: a change that is refused leaves everything as it was.
        own = {scope: dict(values) for scope, values in self._own.items()}
        mine = own.setdefault(model, {})
        for name, value in changes.items():
            mine.pop(name, None)
            if value is not None:
                mine[name] = value
        if not mine:
            del own[model]
        if len(own) > MAX_MODELS:
            raise UnavailableError(f"{MAX_MODELS} models have trace settings of their own: clear those of another one")
        # A changed scope gets a new sampler even where its values stay the same: its count begins anew.
        self._replace(own, {model} if changes else set())

    def close(self, timeout_s: float) -> None:
        """Complete the files, for ``timeout_s`` seconds at most."""
        for sampler in self._samplers.values():
            sampler.finish()
        if self._writer is not None:
            self._writer.close(timeout_s)

    def _replace(self, own: dict[str, dict[str, Any]], changed: set[str]) -> None:
        everywhere = replace(self._start, **own.get(_ALL, {}))
        settings = {_ALL: everywhere} | {model: replace(everywhere, **values) for model, values in own.items()}
        for found in settings.values():
            self._check(found)
        before, self._settings, self._own = self._settings, settings, own
        for scope in before.keys() | settings.keys():
            if scope in changed or before.get(scope) != settings.get(scope):
                self._update_sampler(scope)
        self.when_changed()

    def _check(self, settings: TraceSettings) -> None:
        if settings.is_on and self._writer is None:
            raise InvalidArgumentError("Attempting to set invalid trace setting :trace file name is not given")
        if TENSORS in settings.trace_level and self._writer is not None and not self._writer.takes_tensors:
            raise UnsupportedError(TENSORS_IN_FILES)

    def _update_sampler(self, scope: str) -> None:
        old = self._samplers.pop(scope, None)
        if old is not None:
            old.finish()
        settings = self._settings.get(scope)
        if settings is None or self._writer is None:
            return
        # With parents, a rate or a count of 0 still traces the requests of callers that trace.
        if settings.traces or (settings.is_on and self._writer.takes_parents):
            self._samplers[scope] = Sampler(settings, self._writer, self._ids, self._notify)

    def _notify(self) -> None:
        # Looked up here, and not handed to the samplers: the engine sets it after the first ones are made.
        self.when_changed()


def _sink(options: ServerOptions) -> TraceSink | None:
    """The destination of traces that ``options`` ask for; None without one."""
    if trace_mode(options.trace_config) == OPENTELEMETRY:
        # Imported here: few servers use it.
        from naiad.telemetry.tracing.otlp import SpanExport, span_settings

        return SpanExport(span_settings(options.trace_config, os.environ))
    file = next((str(item.value) for item in reversed(options.trace_config) if item.name == "trace_file"), "")
    return TraceWriter(file) if file else None
