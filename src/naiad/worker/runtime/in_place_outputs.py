"""Outputs that lie in large inputs of the batch: they go back to the server where they are, without a copy."""

from __future__ import annotations

from collections import deque
from typing import Any

from ..ipc.frame_body import FrameBody
from ..ipc.frames import FRAME, IN_INPUT, NUMBERS, PLACE, RELEASE, SEGMENT_BYTES
from ..ipc.segments import ServerSegments
from ..ipc.types import Array


class InPlaceOutputs:
    """The outputs of one frame that lie in lent inputs.

    An output stays there if nothing refers to the input any more once the batch is forgotten. Otherwise the model could
    change it before the server has sent it, so it is copied.

    Args:
        inputs: what the server has lent.
        released: the numbers of tensors that nothing refers to any more.
    """

    def __init__(self, inputs: ServerSegments, released: deque[int]) -> None:
        self._inputs = inputs
        self._released = released
        self._found: list[tuple[int, int, int, Array]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, body: FrameBody, data: Any, size: int) -> bool:
        """Leave out the place of an output until ``settle``; False for one that lies in no lent input."""
        if size < SEGMENT_BYTES or (found := self._inputs.find_lent(data)) is None:
            return False
        self._found.append((len(body.heads), *found))
        body.heads.append(b"")
        return True

    def settle(self, body: FrameBody) -> bytes:
        """Add the places; the frame to be sent behind the body's, which releases the inputs."""
        returned: dict[int, bytes] = {}
        for at, number, offset, memory in self._found:
            if number not in returned and not self._take_over(number):
                body.add(memory, memory.nbytes)
                body.heads[at] = body.heads.pop()
                continue
            returned[number] = NUMBERS.pack(number)
            body.heads[at] = PLACE.pack(number, IN_INPUT, offset, memory.nbytes)
        numbers = b"".join(returned.values())
        return FRAME.pack(RELEASE, len(numbers), 0) + numbers if numbers else b""

    def _take_over(self, number: int) -> bool:
        """Release an input here instead of with the frames that are due; False while anything refers to it."""
        try:
            self._released.remove(number)
        except ValueError:
            return False
        return True
