"""A model of a repository that this process serves to itself: what the model can do without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from naiad.config.export import config_json
from naiad.errors import NaiadError
from naiad.perf.results import ServerParts
from naiad.perf.settings import TargetSettings
from naiad.perf.steps import ModelDescription, Step, TensorValue
from naiad.perf.target.in_process.channel import CountsPlace, CountsRequest, EngineChannel, EnginePlace
from naiad.perf.target.in_process.engine_loop import EngineLoop, TurnSelector
from naiad.perf.target.in_process.request import EngineStep
from naiad.perf.target.model_text import read_description, read_parts
from naiad.perf.target.protocol import ClientChannel, Poller, ResponseListener, TargetError
from naiad.perf.target.region_calls import RegionCalls
from naiad.server.embedded import EmbeddedServer
from naiad.shared_memory.region import RegionRef


class InProcessTarget:
    """A model that is loaded by ``describe`` and unloaded by ``close``.

    Its requests go through the scheduler, the batcher and the instances as those of a server do; only the front end,
    which reads and writes the protocol, has no part in it.
    """

    protocol = "in_process"

    def __init__(self, settings: TargetSettings) -> None:
        """Read the repository.

        Raises:
            TargetError: it cannot be read.
        """
        self._settings = settings
        self.is_streaming = settings.streaming
        assert settings.model_repository is not None, "the options ask for a repository"
        try:
            self._server = EmbeddedServer(settings.model_repository)
        except NaiadError as error:
            raise TargetError(f"cannot serve '{settings.model_repository}' in this process: {error}") from None
        self._selector = TurnSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._selector.end_turn = self._loop.stop
        self._description: ModelDescription | None = None

    @property
    def endpoint(self) -> str:
        """Where the model is."""
        return "this process"

    def open_loop(self) -> EngineLoop:
        """A loop for the load, which runs the model as well."""
        return EngineLoop(self._loop, self._selector)

    def close(self) -> None:
        """Unload the model, and stop its threads and processes."""
        if self._loop.is_closed():
            return
        self._loop.run_until_complete(self._server.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def describe(self) -> ModelDescription:
        """Load the model.

        Raises:
            TargetError: there is no such model, or it cannot be loaded.
        """
        name, version = self._settings.model, self._settings.version
        try:
            self._loop.run_until_complete(self._server.load(name))
            self._description = self._describe(name, version)
            self._model = self._server.engine.find(name, version)
        except NaiadError as error:
            self.close()
            raise TargetError(f"cannot load the model '{name}' in this process: {error}") from None
        return self._description

    def _describe(self, name: str, version: str) -> ModelDescription:
        engine = self._server.engine
        metadata = engine.model_metadata(name, version)
        config = json.loads(config_json(engine.model_config(name, version)))
        return read_description(metadata, config, self._describe)

    def encode(self, step: Step, index: int) -> EngineStep:
        """A step as arrays; ``describe`` comes first.

        Raises:
            TargetError: the model does not take it.
        """
        settings = self._settings
        return EngineStep(self._model, step, index, settings.request_parameters, keeps_outputs=settings.keeps_responses)

    def outputs_of(self, response: tuple[TensorValue, ...]) -> Mapping[str, TensorValue]:
        """The outputs of a response by name."""
        return {value.name: value for value in response}

    def change_trace(self, settings: Mapping[str, str]) -> None:
        """Refuse traces.

        Raises:
            TargetError: always.
        """
        raise TargetError("--trace-* need a server: --service-kind=in_process writes no traces; leave them out")

    def place_tensors(self, outputs: Mapping[str, RegionRef]) -> RegionCalls:
        """Refuse shared memory.

        Raises:
            TargetError: always.
        """
        raise TargetError(
            "--shared-memory has no use with --service-kind=in_process: the model reads the tensors of this process as "
            "they are; leave it out"
        )

    def open(self, poller: Poller, listener: ResponseListener, places: int) -> ClientChannel:
        """Room for so many requests."""
        found = (EnginePlace(self._loop, listener, self._model, is_streaming=self.is_streaming) for _ in range(places))
        return EngineChannel(tuple(found))

    def open_side(self, poller: Poller, listener: ResponseListener) -> ClientChannel:
        """Room for one question for the counts."""
        return EngineChannel((CountsPlace(self._loop, listener, self._counts),))

    def statistics_request(self) -> CountsRequest:
        """The question for the counts."""
        return CountsRequest()

    def _counts(self) -> bytes:
        return json.dumps(self._server.engine.statistics(None, None)).encode()

    def read_statistics(self, body: bytes) -> ServerParts | None:
        """The counts since the model was loaded."""
        return None if self._description is None else read_parts(json.loads(body), self._description)
