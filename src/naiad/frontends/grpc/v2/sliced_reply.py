"""Long responses about many models, which the event loop makes in slices."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from naiad.engine.engine import Engine
from naiad.errors import INTERNAL_FAILURE
from naiad.frontends.grpc.rpc.call import RpcCall, reply_message
from naiad.wire.grpc.status import Status

log = logging.getLogger(__name__)
_Part = TypeVar("_Part")


def reply_in_slices(
    engine: Engine, call: RpcCall, response: Any, parts: Iterable[_Part], add: Callable[[_Part], object]
) -> None:
    """``add`` the parts to a response message, with other requests in between, and reply when it is complete."""

    def steps() -> Iterator[None]:
        try:
            for part in parts:
                if call.ended:
                    return
                add(part)
                yield
            reply_message(call, response)
        except Exception:
            log.exception("handler failed: %s", type(response).__name__)
            call.finish(Status.INTERNAL, INTERNAL_FAILURE)

    engine.sliced_work.run(steps())
