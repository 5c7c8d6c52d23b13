"""Reading inference requests that come as protobuf messages: by the memo of an equal one, or in full."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
from google.protobuf.message import DecodeError

from naiad.config.messages import message_class
from naiad.config.spec import ModelSpec
from naiad.engine.facade import InferenceEngine
from naiad.engine.request_validation import check_repeats, check_size
from naiad.errors import INTERNAL_FAILURE, InternalError, InvalidArgumentError, NaiadError, UnsupportedError
from naiad.execution.model.interface import ServingModel
from naiad.frontends.grpc.rpc.call import Body
from naiad.frontends.grpc.v2.replies import UNPARSABLE
from naiad.frontends.grpc.v2.request_memo import Remembered, memo_key, memo_key_size
from naiad.frontends.inference.offload import run_off_loop
from naiad.frontends.inference.request_planner import Planner, read_bytes
from naiad.lifecycle.memory.load_on_demand import LoadOnDemand
from naiad.request import Array, request_label
from naiad.scheduling.admission import RequestBudget
from naiad.wire.proto_fields import has_more_fields
from naiad.wire.v2.contents import TypedContents, decode_contents, only_field
from naiad.wire.v2.header import MAX_DESCRIPTION_BYTES, MAX_ENTRIES, InferHeader, InputHeader, check_description
from naiad.wire.v2.long_contents import LONG_STRINGS_BYTES, ReadContents, TypedValues, has_long_contents, read_contents
from naiad.wire.v2.plan import MAX_PLAN_KEY, PlanMemo
from naiad.wire.v2.proto import Layout, ProtoPlan, raw_offsets, scan
from naiad.wire.v2.proto_message import Raw, read_message
from naiad.wire.v2.sequence_plan import SequencePlans, cut_proto

log = logging.getLogger(__name__)

MAX_FIELDS: Final = 4 * MAX_ENTRIES
"""A large message in an unusual layout is refused if it has more fields than this."""

_LARGE_BYTES: Final = 1 << 20

Source = Raw | TypedContents | TypedValues
Decoded = tuple[ServingModel, ProtoPlan, dict[str, Array], str]
"""A valid request: the model, the plan, the inputs and the id."""


class UnparsableRequestError(InternalError):
    """The bytes are no message of the expected type. The protocol answers this with INTERNAL."""


class LongContentsError(InvalidArgumentError):
    """The typed contents of a message would hold the event loop up: ``read_contents_later`` reads them in a thread, and
    its result goes to ``Decoder.read`` with the message. ``budget`` counts the message meanwhile."""

    def __init__(self, budget: RequestBudget) -> None:
        super().__init__("the contents are too long to be read at once")
        self.budget = budget


def read_contents_later(
    message: Body, budget: RequestBudget, done: Callable[[ReadContents], None], failed: Callable[[NaiadError], None]
) -> None:
    """Read the typed contents of a message in a thread, then call ``done`` or ``failed`` on the loop."""

    def read() -> ReadContents:
        try:
            return read_contents(message)
        except ValueError:
            raise UnparsableRequestError(UNPARSABLE) from None

    def proceed(contents: ReadContents) -> None:
        try:
            done(contents)
        except NaiadError as error:
            failed(error)
        except Exception:
            # A callback of the loop: without a response the call would never end.
            log.exception("a request with long contents could not be handled")
            failed(InternalError(INTERNAL_FAILURE))

    run_off_loop(read, proceed, failed, budget, len(message))


class Decoder(Protocol):
    """Reads requests; see ``RequestDecoder``, which is one."""

    @property
    def demand(self) -> LoadOnDemand | None: ...
    def recall(self, message: Body) -> Decoded | None: ...
    def read(self, message: Body, contents: ReadContents | None = None) -> Decoded: ...
    def read_id(self, message: Body) -> str: ...


class RequestDecoder:
    """Reads and checks the inference requests for all models.

    Args:
        engine: finds the models.
        serves_decoupled: whether decoupled models are served too.
    """

    def __init__(self, engine: InferenceEngine, serves_decoupled: bool) -> None:
        self._engine = engine
        self._serves_decoupled = serves_decoupled
        self._last: Remembered | None = None
        self._memo = PlanMemo[Remembered]()
        # None until the first request of a sequence, so that other requests pay one test.
        self._sequences: SequencePlans[Remembered] | None = None
        self._planners: dict[tuple[str, int], Planner[ProtoPlan]] = {}
        self._class = message_class("ModelInferRequest")
        engine.follow(self)

    @property
    def demand(self) -> LoadOnDemand | None:
        """Loads models for requests; None without the option."""
        return self._engine.demand

    def forget(self, model: ServingModel) -> None:
        """Drop a model that is being unloaded."""
        if self._last is not None and self._last.model is model:
            self._last = None
        self._memo.forget(lambda like: like.model is model)
        if self._sequences is not None:
            self._sequences.forget(lambda like: like.model is model)
        self._planners = {key: planner for key, planner in self._planners.items() if planner.model is not model}

    def recall(self, message: Body) -> Decoded | None:
        """Read a request that is like an earlier one; None if there was none.

        Raises:
            NaiadError: as ``Engine.find``; or a BYTES tensor is wrong.
        """
        like = self._last
        # The last memo first: most callers repeat one kind of request, which then needs no look-up.
        found = like.match(message) if like is not None else None
        if like is None or found is None:
            return self._look_up(message)
        model = self._engine.find(like.plan.model, like.version)
        # Loaded anew: the plan belongs to the model before, and the request is read in full.
        if model is not like.model:
            return None
        return model, like.plan, like.plan.views(message, found[0]), found[1]

    def _look_up(self, message: Body) -> Decoded | None:
        layout = scan(message)
        # Long descriptions are not copied to be looked up: no memo is kept for them.
        if layout is None or memo_key_size(layout) > MAX_PLAN_KEY or layout.raw_at > MAX_DESCRIPTION_BYTES:
            return None
        key = memo_key(message, layout)
        like = self._memo.get(key) or self._of_another_sequence(message, layout, key)
        if like is None or not like.fits(layout.sizes()):
            return None
        try:
            request_id = layout.read_id(message)
        except UnicodeDecodeError:
            return None
        model = self._engine.find(like.plan.model, like.version)
        if model is not like.model:
            return None
        if not like.varies:
            # Only a memo that ``match`` can recognise.
            self._last = like
        inputs = {
            given.name: _read_raw(given, raw, model.spec, request_id)
            for given, raw in zip(like.inputs, _views(message, layout), strict=True)
        }
        return model, like.plan, inputs, request_id

    def _of_another_sequence(self, message: Body, layout: Layout, key: bytes) -> Remembered | None:
        """The memo for a request that differs from an earlier one only in its correlation id."""
        found = self._sequences.find(key) if self._sequences is not None else None
        if found is None:
            return None
        like, number = found
        made = Remembered(message, layout, like.model, like.version, like.plan.in_sequence(number), like.inputs)
        self._memo.keep(key, made)
        return made

    def read(self, message: Body, contents: ReadContents | None = None) -> Decoded:
        """Read and validate a request in full; keep a memo where the next request may be like it.

        Raises:
            LongContentsError: a thread must read the ``contents`` first.
            UnparsableRequestError: the bytes are no ``ModelInferRequest``.
            NaiadError: the request is malformed or does not fit its model.
        """
        layout = scan(message) if contents is None else None
        if contents is None and (layout is None or not layout.raws) and len(message) >= LONG_STRINGS_BYTES:
            self._look_at_contents(message, layout)
        parsed = self._parse(message if contents is None else contents.message, layout)
        # Before the tensors are read: a request without room must cost little.
        model = self._find(parsed, len(message))
        spec = model.spec
        if layout is not None:
            raws: Sequence[Raw] = _views(message, layout)
        else:
            raws = parsed.raw_input_contents if contents is None else contents.raws
        try:
            header, found = read_message(parsed, raws, spec.name)
        except InvalidArgumentError:
            # The reference looks at all names before it looks for the data.
            if len(parsed.inputs) <= MAX_ENTRIES:
                check_repeats("input", [given.name for given in parsed.inputs], parsed.id)
            raise
        sources: Sequence[Source | None] = found
        if contents is not None:
            sources = _with_contents(header, found, contents, spec.name)
        # Inputs in regions have no field among the raw tensors; their offsets are never read.
        offsets = raw_offsets([i.binary_size or 0 for i in header.inputs])
        names = [i.name for i in header.inputs]
        plan = self._planner(model).plan(header, dict(zip(names, offsets, strict=True)))
        inputs = {
            given.name: _read_input(given, source, spec, header.id)
            for given, source in zip(header.inputs, sources, strict=True)
            if source is not None
        }
        # A memo needs every input in the message to be raw: other data lie in the description.
        carried = [given for given in header.inputs if given.region is None]
        if layout is not None and len(layout.raws) == len(carried) and memo_key_size(layout) <= MAX_PLAN_KEY:
            like = Remembered(message, layout, model, parsed.model_version, plan, carried)
            key = memo_key(message, layout)
            self._memo.keep(key, like)
            if plan.correlation_id:
                self._sequences = self._sequences or SequencePlans(cut_proto)
                self._sequences.keep(key, like, plan.correlation_id)
        return model, plan, inputs, header.id

    def _find(self, parsed: Any, size: int) -> ServingModel:
        """The model of a request, checked for room for ``size`` bytes."""
        model = self._engine.find(parsed.model_name, parsed.model_version)
        model.check_room(size)
        if model.spec.decoupled and not self._serves_decoupled:
            raise UnsupportedError("ModelInfer RPC doesn't support models with decoupled transaction policy")
        return model

    def _look_at_contents(self, message: Body, layout: Layout | None) -> None:
        """Check that the loop may read a message without raw tensors, or in an unusual layout; it raises if not."""
        is_unusual = layout is None and len(message) > _LARGE_BYTES
        if not is_unusual and not has_long_contents(message):
            return
        if layout is not None:
            # Checked before it is parsed, which takes time with its length.
            check_description(layout.key_at)
            # A request that is refused anyway should not cost a thread's time.
            self._find(self._class.FromString(message[: layout.key_at]), len(message))
        raise LongContentsError(self._engine.budget)

    def read_id(self, message: Body) -> str:
        """The id of a request, whatever else is wrong with it; "" if it cannot be read."""
        layout = scan(message)
        try:
            if layout is not None:
                return layout.read_id(message) if layout.key_at <= MAX_DESCRIPTION_BYTES else ""
            # An error does not justify parsing a long message for its id.
            if len(message) > _LARGE_BYTES or has_long_contents(message):
                return ""
            return str(self._parse(message, None).id)
        except UnicodeDecodeError:
            return ""
        except (InvalidArgumentError, UnparsableRequestError):
            return ""

    def _parse(self, message: Body, layout: Layout | None) -> Any:
        """The parsed message; without its raw tensors if their layout is known, so that protobuf does not copy them."""
        check_description(len(message) if layout is None else layout.raw_at)
        if layout is None and len(message) > _LARGE_BYTES and has_more_fields(message, MAX_FIELDS):
            raise InvalidArgumentError(
                f"the request has more than {MAX_FIELDS} fields, counting each input, output, parameter and tensor: "
                "send fewer"
            )
        try:
            return self._class.FromString(message if layout is None else message[: layout.raw_at])
        except DecodeError:
            raise UnparsableRequestError(UNPARSABLE) from None

    def _planner(self, model: ServingModel) -> Planner[ProtoPlan]:
        key = (model.name, model.version)
        found = self._planners.get(key)
        if found is None or found.model is not model:
            found = self._planners[key] = Planner(model, ProtoPlan)
        return found


def _views(message: Body, layout: Layout) -> list[Raw]:
    flat = memoryview(message)
    return [flat[begin:end] for begin, end in layout.raws]


def _with_contents(
    header: InferHeader, sources: Sequence[Raw | TypedContents | None], contents: ReadContents, model: str
) -> list[Source | None]:
    """The sources of the inputs, with the contents that the thread read."""
    found: list[Source | None] = []
    for given, source, read in zip(header.inputs, sources, contents.inputs, strict=True):
        if read is not None and source is not None:
            only_field(read.filled, given, model)
        found.append(source if read is None or source is None else read)
    return found


def _read_input(given: InputHeader, source: Source, spec: ModelSpec, request_id: str) -> Array:
    if not isinstance(source, (TypedContents, TypedValues)):
        return _read_raw(given, source, spec, request_id)
    if not given.dtype.is_bytes:
        itemsize = given.dtype.itemsize
        check_size(spec, given.name, given.elements * itemsize, source.size * itemsize, request_id)
    place = f"inference input '{given.name}' for model '{spec.name}'"
    decode = source.array if isinstance(source, TypedValues) else partial(decode_contents, source)
    if not given.dtype.is_bytes:
        return decode(given, place)
    try:
        return decode(given, place)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(request_label(request_id) + str(error)) from None


def _read_raw(given: InputHeader, raw: Raw, spec: ModelSpec, request_id: str) -> Array:
    """A raw tensor, whose size was validated; numbers are views of the message."""
    if given.dtype.is_bytes:
        return read_bytes(given, spec, raw, request_id)
    return np.ndarray(given.shape, given.dtype.numpy, raw)
