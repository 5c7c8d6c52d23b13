"""A call of ``execute``, the responses that its result holds, and what is wrong with results that hold none."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Sequence

from ..api.inference_request import TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, InferenceRequest
from ..api.inference_response import InferenceResponse
from ..ipc.errors import FailedError, TritonModelException, describe
from ..ipc.frames import FLAG_FINAL, FLAG_RESCHEDULE
from .batch import WorkerBatch
from .uniform_batch import AddressedResponse


class WrongResultError(Exception):
    """``execute`` returned no list of responses. Callers see the text as it is, without a traceback."""


class FailedBatchError(Exception):
    """A model failed with a batch; the text is what callers read."""


def responses_of(
    instance: str, model: Any, model_py: str, batch: WorkerBatch, wait: Callable[[Any], Any]
) -> list[AddressedResponse]:
    """Run a batch of a model with one response for each request, and return the responses.

    Args:
        wait: runs a coroutine to its end.

    Raises:
        FailedBatchError: the model failed, in whatever way.
    """
    try:
        batch.result = call_model(model, model_py, batch.given)
        if inspect.iscoroutine(batch.result):
            batch.result = wait(batch.result)
        batch.settle_order()
        return responses_to(instance, batch.requests, batch.result)
    # SystemExit as well: a model that exits fails its batch.
    except BaseException as error:
        raise FailedBatchError(failure_text(instance, error)) from None


def call_model(model: Any, model_py: str, requests: list[InferenceRequest]) -> Any:
    """What ``execute`` returns: a coroutine for a coroutine function."""
    execute = getattr(model, "execute", None)
    if execute is None:
        raise WrongResultError(f"Python model {model_py} does not implement `execute` method.")
    return execute(requests)


def responses_to(instance: str, requests: Sequence[InferenceRequest], result: Any) -> list[AddressedResponse]:
    """The responses in a result. A request whose response sender is in use gets them from there.

    Raises:
        WrongResultError: the result has not one response for each request.
    """
    # A model that uses senders or reschedules need not return a list of None.
    if result is None and any(r._sender is not None or is_rescheduled(r) for r in requests):
        result = [None] * len(requests)
    if not isinstance(result, list):
        raise WrongResultError(f"Expected a list in the execute return, found type '{type(result)}'.")
    if len(result) != len(requests):
        raise WrongResultError(
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(result)}\n"
        )
    responses: list[AddressedResponse] = []
    for request, response in zip(requests, result):
        # The usual case first, past the checks of the others.
        if type(response) is InferenceResponse and _is_plain(request):
            responses.append((request, response, FLAG_FINAL))
        elif response is None:
            _add_missing(instance, responses, request)
        else:
            _check_response(request, response)
            responses.append((request, response, FLAG_FINAL))
    return responses


def failure_text(instance: str, error: BaseException) -> str:
    """What callers read of an error of a model."""
    return failed(instance, str(error) if isinstance(error, WrongResultError) else describe(error))


def failed(instance: str, text: str) -> str:
    """The text of a failure, with the name of the instance."""
    return f"Failed to process the request(s) for model '{instance}', message: {text}"


def is_rescheduled(request: InferenceRequest) -> bool:
    """Whether the model wants to see a request again."""
    return request._release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE


def _add_missing(instance: str, responses: list[AddressedResponse], request: InferenceRequest) -> None:
    """Add the response to a request for which the result has None."""
    if is_rescheduled(request):
        responses.append((request, None, FLAG_FINAL | FLAG_RESCHEDULE))
    elif request._sender is None:
        text = failed(instance, _not_a_response(None))
        responses.append((request, InferenceResponse(error=FailedError(text)), FLAG_FINAL))


def _is_plain(request: InferenceRequest) -> bool:
    """Whether nothing was done to the request that restricts its response."""
    return request._sender is None and request._release_flags != TRITONSERVER_REQUEST_RELEASE_RESCHEDULE


def _check_response(request: InferenceRequest, response: Any) -> None:
    if is_rescheduled(request):
        raise WrongResultError(
            # The text of the reference, its spelling included.
            "Expected a None object in the execute function return list for reschduled request, found type "
            f"'{type(response)}'."
        )
    if not isinstance(response, InferenceResponse):
        raise WrongResultError(_not_a_response(response))
    # Counted like a response of the sender: both ways together may send one.
    if request._sender is not None:
        try:
            request._sender.count(True, True)
        except TritonModelException as error:
            raise WrongResultError(str(error)) from None


def _not_a_response(found: Any) -> str:
    return f"Expected an 'InferenceResponse' object in the execute function return list, found type '{type(found)}'."
