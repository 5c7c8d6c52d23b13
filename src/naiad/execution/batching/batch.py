"""A batch: requests that an instance runs together, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from naiad.errors import NaiadError
from naiad.request import Array, InferRequest


class Batch:
    """Requests that run together. The event loop sets the first part, the instance the second.

    Attributes:
        requests: in the order of their rows, with the empty rows of sequences.
        callers: the requests that get responses and are counted when the batch is done.
        count: how many callers wait for these; more than ``callers`` has where some are groups.
        rows: their rows together.
        outputs: the names of the outputs that any request wants.
        inputs: the gathered inputs; None where the instance gathers them.
        results: the model's output arrays, valid when ``error`` is None.
        parts: the outputs of each request, where these are not its rows of the results; else empty.
        reason: why it left a queue that makes batches; else "".
        gather_ns: how long gathering took when the loop did it, else 0.
        splits: whether its requests are run in parts when it fails; not those of sequences, as the model may have
            taken some in before it failed.
        start_ns, input_ns, infer_ns, end_ns: monotonic times in the instance: the start, the inputs gathered, the model
            done, the results ready.
    """

    __slots__ = (
        "callers",
        "count",
        "end_ns",
        "error",
        "gather_ns",
        "infer_ns",
        "input_ns",
        "inputs",
        "outputs",
        "parts",
        "reason",
        "requests",
        "results",
        "rows",
        "splits",
        "start_ns",
    )

    def __init__(self, requests: list[InferRequest], callers: list[InferRequest] | None = None) -> None:
        """``callers``: the requests of sequences without empty rows; None without sequences."""
        self.requests = requests
        self.callers = requests if callers is None else callers
        self.splits = callers is None
        first = requests[0].options
        rows = 0
        outputs = first.outputs
        has_group = first.is_group
        for request in requests:
            options = request.options
            rows += options.rows
            # Requests with one plan share their options, so the test of identity is mostly enough.
            if options is not first:
                has_group = has_group or options.is_group
                if options.outputs != outputs:
                    outputs = _union(outputs, options.outputs)
        self.count = sum([request.take() for request in requests]) if has_group else len(self.callers)
        self.rows = rows
        self.outputs: Sequence[str] = outputs
        self.inputs: Mapping[str, Array] | None = None
        self.results: Mapping[str, Array] = {}
        self.parts: Sequence[Mapping[str, Array]] = ()
        self.error: NaiadError | None = None
        self.reason = ""
        self.gather_ns = self.start_ns = self.input_ns = self.infer_ns = self.end_ns = 0

    def take_requests(self) -> list[InferRequest]:
        """Remove its requests, which other batches run; those of groups one by one."""
        requests = self.requests if self.count == len(self.callers) else self.singles()
        self.requests = self.callers = []
        self.count = 0
        return requests

    def drop_caller(self, request: InferRequest) -> None:
        """Drop a request from those that are counted when the batch is done: it was counted elsewhere."""
        self.callers = [caller for caller in self.callers if caller is not request]
        self.count = len(self.callers)

    def singles(self) -> list[InferRequest]:
        """The requests of all callers."""
        return [single for request in self.callers for single in request.singles()]

    def fail(self, error: NaiadError) -> None:
        """Set the error that ended it."""
        # The frames of its traceback refer to this batch, which would stay until the garbage collector runs, and with
        # it its tensors and the regions of clients.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        self.error = error


def _union(some: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return some + tuple(name for name in more if name not in some)
