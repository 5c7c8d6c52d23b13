"""The source that the launch mode asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from naiad.analyze.errors import AnalyzeError, TrialError
from naiad.analyze.measure.local import LocalServer
from naiad.analyze.measure.perf_level import AnalysisStoppedError
from naiad.analyze.measure.served import ServedSource
from naiad.analyze.measure.source import LoadOptions, MeasurementSource
from naiad.analyze.measurement import Measurement
from naiad.analyze.settings.settings import AnalyzeSettings
from naiad.analyze.trial import AnalysisTrial
from naiad.perf.load.stop import Stop
from naiad.perf.target.metrics import MetricsTarget
from naiad.perf.target.protocol import TargetError

_GRPC_TLS: Final = "--ssl-grpc-use-ssl"


def open_source(settings: AnalyzeSettings, options: LoadOptions, stop: Stop) -> tuple[MeasurementSource, str]:
    """A source, and where it measures.

    Raises:
        AnalyzeError: it cannot be had.
    """
    mode = settings["triton_launch_mode"]
    if mode == "c_api":
        # Imported here: no other mode needs a whole server.
        from naiad.analyze.measure.in_process import InProcessSource

        return InProcessSource(_repository(settings), options, stop), "this process"
    if mode == "local":
        source = LocalSource(settings, options, stop)
        return source, source.endpoint
    url = settings["triton_grpc_endpoint" if options.protocol == "grpc" else "triton_http_endpoint"]
    if not _has_metrics(options.metrics_url):
        options = replace(options, metrics_url="")
    return ServedSource(url, options, stop, may_load=not settings["reload_model_disable"]), url


def _has_metrics(url: str) -> bool:
    try:
        MetricsTarget(url).read()
    except TargetError:
        return False
    return True


def _repository(settings: AnalyzeSettings) -> Any:
    repository = settings.repository
    if not repository.is_dir():
        raise AnalyzeError(f"the model repository '{repository}' is no folder")
    return repository


class LocalSource(ServedSource):
    """A server that is started for the analysis, and stopped behind it. A configuration that ends it has failed."""

    def __init__(self, settings: AnalyzeSettings, options: LoadOptions, stop: Stop) -> None:
        self._launch_settings, self._launch_options, self._launch_stop = settings, options, stop
        self._start()

    def _start(self) -> None:
        settings, options, stop = self._launch_settings, self._launch_options, self._launch_stop
        self._local = LocalServer(
            settings["triton_server_path"],
            _repository(settings),
            settings.server_flags,
            settings.server_environment,
            settings["triton_output_path"],
        )
        self.endpoint = self._local.grpc if options.protocol == "grpc" else self._local.http
        if not self.endpoint:
            self._local.stop()
            raise AnalyzeError(f"client_protocol is {options.protocol}, which triton_server_flags switch off")
        if any(_GRPC_TLS in words for words in options.flags.values()):
            # Certificates of servers on the same machine are for this name, hardly ever for an address.
            self.endpoint = f"localhost:{self.endpoint.rpartition(':')[2]}"

        def on_wait(seconds: float) -> None:
            if stop.is_wanted:
                raise AnalysisStoppedError

        try:
            self._local.wait_ready(on_wait)
        except BaseException:
            self._local.stop()
            raise
        metrics = self._local.metrics
        options = replace(options, metrics_url=f"{metrics}/metrics" if metrics else "")
        super().__init__(self.endpoint, options, stop, f"the server that analyze started (process {self._local.pid})")

    def measure(self, trial: AnalysisTrial, scale: int) -> Measurement:
        """Load what the trial asks for, and measure it; where that ends the server, another one is started."""
        try:
            return super().measure(trial, scale)
        except AnalyzeError:
            ended = self._local.how_it_ended()
            if not ended:
                raise
            self._local.stop()
            self._start()
            raise TrialError(f"the server {ended}") from None

    def close(self) -> None:
        """Stop the server; its configurations go with it."""
        self._local.stop()
