"""The runner of instances in this process, in any thread: executes a batch (gather, run, check, take times), and turns
what an instance raises at its start and its end into errors of the server.
"""

from __future__ import annotations

import logging
from time import monotonic_ns

from naiad.backend_api.backend import Instance
from naiad.backend_api.request_batch import RequestBatchInstance
from naiad.config.spec import ModelSpec
from naiad.errors import BackendError, GpuLostError, ModelLoadError, NaiadError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.gather import check_results, gather
from naiad.execution.batching.ragged import assemble, take_apart
from naiad.execution.batching.shm_gather import gather_from_regions, place_results
from naiad.execution.instances.on_device import execute_on_device, gather_on_device
from naiad.gpus.lost import lost_gpus

logger = logging.getLogger("naiad")


def failed_to_start(name: str, error: BaseException) -> ModelLoadError:
    """The error for an instance that could not be created.

    A framework that calls for the end of the process, with SystemExit say, ends that load and nothing else.
    """
    return ModelLoadError(f"instance '{name}' failed to start: {type(error).__name__}: {error}")


def run_failed(model: str, error: BaseException) -> NaiadError:
    """The error for the requests of a run that raised: errors of the server stay as they are, unless a GPU was lost."""
    if (lost := lost_gpus.after(model, error)) is not None:
        return lost
    if isinstance(error, NaiadError):
        return error
    return BackendError(f"model '{model}' failed: {type(error).__name__}: {error}")


def close_instance(instance: Instance | RequestBatchInstance, name: str) -> None:
    """Close an instance; an error is logged, as no caller could act on it."""
    try:
        instance.close()
    except BaseException:
        logger.exception("instance '%s' failed to close", name)


def run_batch(instance: Instance, batch: Batch, spec: ModelSpec, places: bool = False) -> list[Batch]:
    """Run a batch; never raises. A batch of several requests that fails is run again in halves, and failed halves in
    halves of theirs, so that one bad input costs only its own request: n requests mean 2n - 1 runs at most.

    Args:
        places: whether to write outputs into regions where requests want them there.

    Returns:
        The batch with its results or its error, and behind it the parts that ran again; then the batch itself is left
        without requests, and counts as a run that failed.
    """
    done: list[Batch] = []
    waiting = [batch]
    while waiting:
        part = waiting.pop()
        run_once(instance, part, spec, places)
        done.append(part)
        if may_split(part, spec):
            # Reversed for ``pop``: the requests run in their order.
            waiting += halves(part)[::-1]
    return done


def may_split(batch: Batch, spec: ModelSpec) -> bool:
    """Whether a batch that has run is to be run again in parts."""
    if batch.error is None or isinstance(batch.error, GpuLostError):
        return False
    return batch.count > 1 and spec.splits_failed and batch.splits


def halves(batch: Batch) -> list[Batch]:
    """Two batches for the requests of a failed batch, which is left without any."""
    requests = batch.take_requests()
    middle = len(requests) // 2
    return [Batch(requests[:middle]), Batch(requests[middle:])]


def split(batch: Batch) -> list[Batch]:
    """A batch for each request of a batch that could not be run, which is left without any."""
    return [Batch([request]) for request in batch.take_requests()]


def run_once(instance: Instance, batch: Batch, spec: ModelSpec, places: bool = False) -> None:
    """Run a batch as it is; never raises: afterwards it has results or an error. Arguments as ``run_batch``."""
    # ``input_ns`` too: where the loop has gathered the inputs, that stage takes no time here.
    batch.start_ns = batch.input_ns = monotonic_ns()
    # Requests with and without regions are never put together.
    is_plain = spec.assembly is None
    options = batch.requests[0].options
    in_regions = is_plain and options.regions is not None
    try:
        inputs = batch.inputs
        if inputs is None:
            if options.resident is None:
                put_together = gather_from_regions if in_regions else gather if is_plain else assemble
                inputs = put_together(batch, spec)
            else:
                inputs = gather_on_device(instance, batch, spec)
            batch.input_ns = monotonic_ns()
        if options.resident is None:
            results = instance.execute(inputs, batch.outputs)
        else:
            results = execute_on_device(instance, inputs, batch)
        batch.infer_ns = monotonic_ns()
        if is_plain:
            batch.results = check_results(batch, results, spec)
        else:
            take_apart(batch, results, spec)
        if in_regions and places:
            place_results(batch, batch.results)
    except NaiadError as error:
        batch.fail(run_failed(spec.name, error))
    except BaseException as error:
        # Whatever a model raises, SystemExit included, ends its batch and nothing else.
        batch.error = run_failed(spec.name, error)
    batch.end_ns = monotonic_ns()
