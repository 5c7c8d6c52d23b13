"""The trials of ``naiad perf advise``: rounds over all configurations, and the way back whatever happens."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Final

from naiad.perf.advise.advice import Advice
from naiad.perf.advise.conclusion import conclude
from naiad.perf.advise.served_model import RefusedConfigError, ServedModel
from naiad.perf.advise.setup import ModelSetup, UnadvisableError, setups_of
from naiad.perf.advise.trial import StoppedError, Trial, Tried, run_trial
from naiad.perf.input.error import PerfInputError
from naiad.perf.interrupts import Interrupts
from naiad.perf.load.stop import Stop
from naiad.perf.options import PerfOptionError
from naiad.perf.report.machine import machine_fingerprint
from naiad.perf.settings import AdviseSettings
from naiad.perf.target.open import open_kserve
from naiad.perf.target.protocol import TargetError

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class AdviseProgress:
    """Hears of every stage; this one shows nothing."""

    def loading(self, setup: ModelSetup, number: int, rounds: int) -> None:
        """The model is loaded with a configuration, in the round ``number`` of ``rounds``, counted from 1."""

    def waiting(self, seconds: float) -> None:
        """The load takes so long already."""

    def tried(self, setup: ModelSetup, trial: Trial) -> None:
        """A configuration was measured under one load."""

    def refused(self, setup: ModelSetup, cause: str) -> None:
        """A configuration is out of the question."""

    def restoring(self) -> None:
        """The trials are over; the configuration is put back."""

    def restored(self) -> None:
        """The configuration is back."""


class AdviseRun:
    """Tries the configurations of one model.

    Attributes:
        advice: what was found so far; its conclusions are there when ``run`` has returned.
        failure: why the trials ended early; empty when they did not.
    """

    def __init__(
        self, settings: AdviseSettings, progress: AdviseProgress | None = None, command: Sequence[str] = ()
    ) -> None:
        self._settings = settings
        self._perf = settings.perf
        self._progress = progress or AdviseProgress()
        self._stop = Stop()
        self._is_restoring = False
        self.failure = ""
        target = settings.perf.target
        self.advice = Advice(target.model, rounds=settings.rounds, command=tuple(command), protocol=target.protocol)

    def run(self) -> Advice:
        """Measure all configurations in turns, put back the one that was served, and draw the conclusions.

        Raises:
            UnadvisableError: the model or its server has nothing that could be tried.
            TargetError: the server cannot be measured, or is gone.
            PerfInputError, PerfOptionError: the options do not fit the model.
            NotRestoredError: the configuration is not back.
            KeyboardInterrupt: the user stopped it twice.
        """
        control = open_kserve(self._perf)
        model = ServedModel(control, self._perf.target.model, self._wait)
        self.advice.endpoint, self.advice.machine = control.endpoint, machine_fingerprint()
        self.advice.tried = [Tried(setup) for setup in setups_of(model.config)]
        with Interrupts(self._stop, _SIGNALS):
            try:
                self._measure(model)
            except StoppedError:
                self.advice.is_interrupted = True
            except (TargetError, UnadvisableError, PerfInputError, PerfOptionError) as error:
                # Kept as well: that the way back fails too is the second thing to know.
                self.failure = str(error)
                raise
            finally:
                self._restore(model)
        if not self.advice.is_interrupted:
            is_limited = self._perf.load.latency_limit_ms > 0
            conclude(self.advice, self._perf.input.batch_size, is_limited=is_limited)
        return self.advice

    def _wait(self, seconds: float) -> None:
        self._progress.waiting(seconds)
        if self._stop.is_wanted and not self._is_restoring:
            raise StoppedError

    def _restore(self, model: ServedModel) -> None:
        if model.is_changed:
            # One more signal is let pass: the server is not left with a configuration of a trial by accident.
            self._is_restoring, self._stop.is_wanted = True, False
            self._progress.restoring()
            model.restore()
            self._progress.restored()

    # Rounds

    def _measure(self, model: ServedModel) -> None:
        most = max(self._in_flight(tried) for tried in self.advice.tried)
        for number in range(self._settings.rounds):
            # Back and forth, so that no configuration is always the one behind another.
            order = self.advice.tried if number % 2 == 0 else self.advice.tried[::-1]
            for tried in order:
                if not tried.failure:
                    self._progress.loading(tried.setup, number + 1, self._settings.rounds)
                    self._try(model, tried, most, is_first=number == 0)
        if all(tried.failure for tried in self.advice.tried):
            raise TargetError(f"no configuration could be measured: {self.advice.tried[0].failure}")

    def _try(self, model: ServedModel, tried: Tried, most: int, *, is_first: bool) -> None:
        try:
            model.use(tried.setup)
            self._measure_loads(tried, most, is_first=is_first)
        except (RefusedConfigError, TargetError) as error:
            # Raises if the server is gone: then nothing else can be tried either.
            model.check_reachable()
            tried.failure = str(error)
        except (PerfInputError, PerfOptionError):
            # A server that ends while it is asked for the model makes options look wrong that are right.
            model.check_reachable()
            raise
        if tried.failure:
            self._progress.refused(tried.setup, tried.failure)

    def _measure_loads(self, tried: Tried, most: int, *, is_first: bool) -> None:
        limit_ms = self._perf.load.latency_limit_ms
        if not limit_ms:
            tried.compared_at = most
        elif is_first:
            self._search(tried, most, limit_ms)
        for in_flight in sorted(self._levels(tried)):
            if not (is_first and in_flight in tried.trials):
                self._run(tried, in_flight)

    def _levels(self, tried: Tried) -> set[int]:
        """With how many requests in flight a configuration is measured."""
        levels = {tried.compared_at} if tried.compared_at else set()
        if not self._perf.load.latency_limit_ms:
            levels.add(self._in_flight(tried))
        # With one request in flight more instances make no difference.
        fewest = min(other.setup.instances for other in self.advice.tried)
        return levels | ({1} if tried.setup.instances == fewest else set())

    def _search(self, tried: Tried, most: int, limit_ms: int) -> None:
        """Halve the requests in flight until the latency keeps the limit."""
        in_flight = most
        while in_flight:
            trial = self._run(tried, in_flight)
            if trial.latency_ms <= limit_ms:
                tried.compared_at = in_flight
                return
            in_flight //= 2

    def _run(self, tried: Tried, in_flight: int) -> Trial:
        trial = run_trial(self._perf, in_flight, self._stop)
        tried.trials.setdefault(in_flight, []).append(trial)
        tried.failure = tried.failure or trial.failures
        self._progress.tried(tried.setup, trial)
        return trial

    def _in_flight(self, tried: Tried) -> int:
        return tried.setup.in_flight(self._perf.input.batch_size)
