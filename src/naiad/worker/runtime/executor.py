"""The executor of a model: it calls ``execute``, checks the result, and responds to every request."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ..api.inference_request import InferenceRequest
from ..api.inference_response import InferenceResponse
from ..ipc.errors import FailedError, TritonError
from ..ipc.frames import DONE, FLAG_FINAL, FLAG_RESCHEDULE
from .batch import WorkerBatch
from .results import WrongResultError, call_model, failure_text, is_rescheduled, responses_to
from .uniform_batch import AddressedResponse
from .writer import error_frame, json_frame

if TYPE_CHECKING:
    from .host import RuntimeHost


class Executor:
    """Runs the batches of one model instance and responds to their requests.

    ``splits_failed``: a batch that failed is run again request by request, unless a request of it has a response.
    """

    def __init__(
        self, host: RuntimeHost, model: Any, model_py: str, decoupled: bool, splits_failed: bool = False
    ) -> None:
        self.decoupled = decoupled
        self._splits_failed = splits_failed and not decoupled
        self._host = host
        self._out = host.out
        self._model = model
        self._model_py = model_py

    @property
    def is_async(self) -> bool:
        """Whether ``execute`` is a coroutine function."""
        return inspect.iscoroutinefunction(getattr(self._model, "execute", None))

    def run(self, batch: WorkerBatch) -> None:
        """Execute a batch and send its responses."""
        if not batch.requests:
            # None of them could be read, and each has got its error.
            self._end(batch)
            return
        try:
            batch.result = call_model(self._model, self._model_py, batch.given)
            # The test for a list spares nearly every batch the slower ``iscoroutine``.
            if type(batch.result) is not list and inspect.iscoroutine(batch.result):
                self._run_beside(batch)
            if not batch.ended:
                self._finish(batch)
        # SystemExit as well: a model that exits fails its batch, and the process serves on.
        except BaseException as error:
            if self._may_split(batch):
                self._run_singly(batch, error)
            else:
                self._fail(batch, error)

    async def run_async(self, batch: WorkerBatch) -> None:
        """Execute a batch with a coroutine and send its responses. A decoupled model may begin the next meanwhile."""
        if not batch.requests:
            self._end(batch)
            return
        try:
            # Before it runs, so that the server sends the next batch meanwhile.
            if self.decoupled:
                self._end(batch)
            batch.result = await call_model(self._model, self._model_py, batch.given)
            self._finish(batch)
        # The coroutine is being closed: it must not await again.
        except GeneratorExit:
            raise
        except BaseException as error:
            if self._may_split(batch):
                await self._run_singly_async(batch, error)
            else:
                self._fail(batch, error)

    # A batch that failed, request by request

    def _may_split(self, batch: WorkerBatch) -> bool:
        """Whether the batch may run again: not once a request of it was rescheduled or has a response sender."""
        if not self._splits_failed or batch.ended or len(batch.requests) < 2:
            return False
        return all(r._sender is None and not is_rescheduled(r) for r in batch.requests)

    def _run_singly(self, batch: WorkerBatch, failure: BaseException) -> None:
        responses: list[AddressedResponse] = []
        for request in batch.requests:
            try:
                result = call_model(self._model, self._model_py, [request])
                # A plain function may return a coroutine, here as in the whole batch.
                if inspect.iscoroutine(result):
                    import asyncio

                    result = asyncio.run_coroutine_threadsafe(result, self._host.loop()).result()
                responses += responses_to(self._host.instance, [request], result)
            except BaseException as error:
                self._add_failed(responses, request, error)
        self._respond_singly(batch, responses)
        self._host.leave_if_gpu_lost(failure)

    async def _run_singly_async(self, batch: WorkerBatch, failure: BaseException) -> None:
        responses: list[AddressedResponse] = []
        for request in batch.requests:
            try:
                result = await call_model(self._model, self._model_py, [request])
                responses += responses_to(self._host.instance, [request], result)
            except GeneratorExit:
                raise
            except BaseException as error:
                self._add_failed(responses, request, error)
        self._respond_singly(batch, responses)
        self._host.leave_if_gpu_lost(failure)

    def _add_failed(self, responses: list[AddressedResponse], request: InferenceRequest, error: BaseException) -> None:
        # A closed sender has sent the final response already.
        if request._sender is None or not request._sender.close():
            text = failure_text(self._host.instance, error)
            responses.append((request, InferenceResponse(error=FailedError(text)), FLAG_FINAL))

    def _respond_singly(self, batch: WorkerBatch, responses: list[AddressedResponse]) -> None:
        try:
            self._out.respond_to_batch(batch.number, responses, batch.forget)
            batch.ended = True
        except BaseException as error:
            self._fail(batch, error)

    def _run_beside(self, batch: WorkerBatch) -> None:
        """Run the coroutine of a plain function in the loop of another thread. Only default mode waits for it."""
        import asyncio

        future = asyncio.run_coroutine_threadsafe(batch.result, self._host.loop())
        if self.decoupled:
            # Before the callback, which may run at once and has to find the batch ended.
            self._end(batch)
            future.add_done_callback(lambda done: self._ended_beside(batch, done))
        else:
            batch.result = future.result()

    def _ended_beside(self, batch: WorkerBatch, done: Any) -> None:
        try:
            batch.result = done.result()
            self._finish(batch)
        except BaseException as error:
            self._fail(batch, error)

    # Results

    def _finish(self, batch: WorkerBatch) -> None:
        if self.decoupled:
            self._finish_decoupled(batch)
            return
        batch.settle_order()
        responses = responses_to(self._host.instance, batch.requests, batch.result)
        # A response that is missing, as a sender has sent it, would shift the others of a uniform frame.
        schema = batch.schema if len(responses) == len(batch.requests) else None
        self._out.respond_to_batch(batch.number, responses, batch.forget, schema)
        # Not before: if the responses cannot be sent, it is the failure that has to end the batch.
        batch.ended = True

    def _finish_decoupled(self, batch: WorkerBatch) -> None:
        if batch.result is not None:
            raise WrongResultError(
                f"Python model '{self._host.instance}' is using the decoupled mode and the execute function must "
                "return None."
            )
        for request in batch.requests:
            if is_rescheduled(request):
                self._reschedule(request)
        if not batch.ended:
            self._end(batch)
        batch.forget()

    def _reschedule(self, request: InferenceRequest) -> None:
        sender = request.get_response_sender()
        # Not after a final response: that request is over and cannot run again.
        if not sender.close():
            self._out.respond(request._number, None, None, FLAG_FINAL | FLAG_RESCHEDULE)

    def _end(self, batch: WorkerBatch, message: str | None = None) -> None:
        self._out.post(json_frame(DONE, batch.number, {} if message is None else {"message": message}))
        batch.ended = True

    # Failures

    def _fail(self, batch: WorkerBatch, error: BaseException) -> None:
        """Send an error to all requests of the batch that have no final response yet."""
        message = failure_text(self._host.instance, error)
        unheard = True
        for request in batch.requests:
            # A closed sender has sent the final response: an error behind it would be a second one.
            was_closed = request._sender is not None and request._sender.close()
            unheard = unheard and was_closed
            if batch.ended and not was_closed:
                self._out.post(error_frame(request._number, TritonError(message)))
        if unheard:
            # Every request has its final response, so the log is where the error can be seen.
            self._host.log("ERROR", message)
        if not batch.ended:
            self._end(batch, message)
        batch.forget()
        self._host.leave_if_gpu_lost(error)
