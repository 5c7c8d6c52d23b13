"""One copy of an inference function: called with requests, it makes responses."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from naiad.pytriton.decorators.batching import batch_wrapper
from naiad.pytriton.decorators.context import TritonContext, inject_triton_context
from naiad.pytriton.decorators.wrapping import wrappers
from naiad.pytriton.exceptions import PyTritonBadParameterError
from naiad.pytriton.model_config.common import ModelWarmup
from naiad.pytriton.model_config.triton_model_config import TritonModelConfig
from naiad.pytriton.model_config.warmup import warmup_inputs
from naiad.pytriton.proxy.types import ParameterValue, Request
from naiad.pytriton.serving.results import ResultReader

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class InferFunction:
    """An inference function with what it needs to run, here or in another process."""

    function: Any
    config: TritonModelConfig
    strict: bool
    warmups: Sequence[ModelWarmup] = ()


class InferCall:
    """Calls an inference function of any kind: plain, generator, coroutine or asynchronous generator."""

    def __init__(self, given: InferFunction, context: TritonContext) -> None:
        self._function = given.function
        self._config = given.config
        self._reader = ResultReader(given.config, given.strict)
        context.model_configs[given.function] = given.config
        inject_triton_context(context, given.function)
        # ``@batch`` joins the inputs, so that the function gets arrays of its own anyway.
        self._copies = batch_wrapper not in wrappers(given.function)

    def request(
        self, inputs: Mapping[str, Array], parameters: Mapping[str, ParameterValue], outputs: Sequence[str]
    ) -> Request:
        """A request as functions see it. They may write to its arrays."""
        arrays = {n: a.copy() if self._copies and not a.flags.writeable else a for n, a in inputs.items()}
        return Request(arrays, dict(parameters), None, list(outputs))

    async def responses(self, requests: Sequence[Request]) -> AsyncGenerator[Sequence[Mapping[str, Array]], None]:
        """The responses to some requests, once or, of a decoupled model, any number of times.

        Raises:
            Exception: what the function raises, or ``ValueError`` for what it should not have returned.
        """
        # The function may change its requests.
        inputs = [dict(request.items()) for request in requests]
        wanted = [request.requested_output_names or () for request in requests]
        found: Sequence[Mapping[str, Array]] | None = None
        async with aclosing(_each(self._function(list(requests)))) as results:
            async for result in results:
                if found is not None:
                    raise ValueError(
                        f"the function of model '{self._config.model_name}' yielded more than one result: bind it with "
                        "ModelConfig(decoupled=True)"
                    )
                made = self._reader.read(result, inputs, wanted)
                if self._config.decoupled:
                    yield made
                else:
                    found = made
        if found is not None:
            yield found

    async def warm_up(self, warmups: Sequence[ModelWarmup], warn: Callable[[str], object]) -> None:
        """Run the warm-up requests. One that fails is a warning in the log: the model serves all the same.

        Args:
            warn: writes a warning into the server's log.
        """
        try:
            for inputs in warmup_inputs(warmups, self._config.batching):
                await self._warm_up_once(inputs, warn)
        except (PyTritonBadParameterError, OSError, ValueError) as error:
            warn(self._warning(error))

    async def _warm_up_once(self, inputs: Mapping[str, Array], warn: Callable[[str], object]) -> None:
        # No output is asked for, as a warm-up may have some of the inputs alone.
        requests = [self.request(inputs, {}, ())]
        try:
            async with aclosing(self.responses(requests)) as responses:
                async for _ in responses:
                    pass
        except Exception as error:
            warn(self._warning(error))

    def _warning(self, error: Exception) -> str:
        name = self._config.model_name
        return f"a warm-up request of model '{name}' failed: {type(error).__name__}: {error}"


async def _each(result: Any) -> AsyncGenerator[Any, None]:
    """The results of a function of any kind."""
    if inspect.isawaitable(result):
        result = await result
    if inspect.isasyncgen(result):
        async with aclosing(result) as stream:
            async for one in stream:
                yield one
    elif inspect.isgenerator(result):
        with closing(result) as values:
            for one in values:
                yield one
    else:
        yield result
