"""``ModelInfer`` with messages of every kind of wrong: what is remembered must never change what is answered.

Each message goes to services that remember, twice, and to services that leave every message to protobuf. All three must
say the same, and refuse as no message what protobuf refuses.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError

from naiad.frontends.grpc.v2 import infer_reader as infer_read
from naiad.tensor.dtypes import BY_WIRE
from support.grpc_calls import RecordedCall
from support.grpc_infer import MODELS, Request, Services, play, request
from support.infer_requests import Contents, spoil

ROUNDS = int(os.environ.get("NAIAD_FUZZ_ROUNDS", "2000"))
TYPED = {"FP32": "fp32_contents", "INT16": "int_contents", "INT32": "int_contents", "BYTES": "bytes_contents"}
TYPED |= {"FP64": "fp64_contents", "BOOL": "bool_contents", "FP16": "fp32_contents", "BF16": "fp32_contents"}
NUMBERS = (0, 1, 2, 3, 16, 2**31, 2**62, 2**63 - 1, -1, -(2**63))
WORDS = ("", "m", "INPUT0", "INPUT1", "OUTPUT0", "FP32", "BYTES", "1", "2", "é", "x" * 200, *MODELS)


class Dice(random.Random):
    """Makes messages: right ones, and then less and less right ones."""

    def array(self, wire: str, dims: str, rows: int) -> np.ndarray:
        shape = [rows, *(self.randint(0, 3) if d == "-1" else int(d) for d in dims.strip("[ ]").split(", "))]
        if wire == "BYTES":
            array = np.empty(shape, object)
            array.ravel()[:] = [self.randbytes(self.randint(0, 3)) for _ in range(array.size)]
            return array
        return np.array([self.randint(0, 99) for _ in range(int(np.prod(shape)))], BY_WIRE[wire].numpy).reshape(shape)

    def request(self) -> Any:
        """A request that fits."""
        model = self.choice(list(MODELS))
        rows = self.choice([1, 1, 2, 8])
        message = request(model, *[self.array(wire, dims, rows) for wire, dims in MODELS[model]])
        message.id = self.choice(["", "", "1", "22", "é", "x" * 130])
        message.model_version = self.choice(["", "", "1"])
        if self.random() < 0.2:
            message.outputs.add(name="OUTPUT0")
        if self.random() < 0.2:
            message.parameters["priority"].uint64_param = self.randint(0, 2)
        return message

    def typed(self, message: Any) -> None:
        """Put the tensors of a message into typed contents, all ones."""
        del message.raw_input_contents[:]
        for given in message.inputs:
            count = int(np.prod(list(given.shape)))
            one: Any = b"s" if given.datatype == "BYTES" else 1
            given.contents.CopyFrom(Contents(**{TYPED[given.datatype]: [one] * count}))

    def spoil_message(self, message: Any) -> None:
        """One thing in a message replaced, added or left out."""
        given = self.choice(message.inputs) if len(message.inputs) else message.inputs.add()
        change = self.randrange(10)
        if change == 0:
            message.model_name = self.choice(WORDS)
        elif change == 1:
            message.model_version = self.choice(WORDS)
        elif change == 2:
            given.name = self.choice(WORDS)
        elif change == 3:
            given.datatype = self.choice(WORDS)
        elif change == 4:
            given.shape[:] = [self.choice(NUMBERS) for _ in range(self.randint(0, 4))]
        elif change == 5:
            message.raw_input_contents.append(self.randbytes(self.randint(0, 9)))
        elif change == 6 and len(message.raw_input_contents):
            del message.raw_input_contents[self.randrange(len(message.raw_input_contents))]
        elif change == 7:
            given.contents.CopyFrom(Contents(**{self.choice(sorted(set(TYPED.values()))): []}))
        elif change == 8:
            parameters = self.choice([message.parameters, given.parameters])
            name = self.choice(["priority", "timeout", "triton_x", "own", "shared_memory_region", "sequence_id"])
            setattr(parameters[name], self.choice(["int64_param", "bool_param", "double_param"]), self.randint(0, 1))
        else:
            message.outputs.add(name=self.choice(WORDS))

    def message(self) -> bytes:
        """The bytes of a message."""
        message = self.request()
        if self.random() < 0.2:
            self.typed(message)
        for _ in range(self.choice([0, 0, 0, 1, 1, 2])):
            self.spoil_message(message)
        raw: bytes = message.SerializeToString()
        return spoil(raw, self) if self.random() < 0.5 else raw


def outcome(services: Services, raw: bytes) -> tuple[Any, list[bytes]]:
    call: RecordedCall = services.ask(raw)
    assert call.ended, "a model that waits for nothing answers at once"
    return call.status, call.messages


def is_message(raw: bytes) -> bool:
    try:
        Request.FromString(raw)
    except DecodeError:
        return False
    return True


@pytest.mark.slow
def test_what_is_remembered_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = Dice(int(os.environ.get("NAIAD_FUZZ_SEED", "3")))

    async def scenario(services: Services) -> None:
        plain = Services(services.house)
        good = fine = 0
        for _ in range(ROUNDS):
            raw = dice.message()
            kind = dice.choice([bytes, bytearray, memoryview])
            first, second = outcome(services, kind(raw)), outcome(services, kind(raw))
            with monkeypatch.context() as patch:
                patch.setattr(infer_read, "scan", lambda message: None)
                wanted = outcome(plain, raw)
            assert first == second == wanted, raw
            assert wanted[0][0] in (0, 3, 5, 12, 13), (raw, wanted)
            assert (wanted[0][0] == 13) == (not is_message(raw)), (raw, wanted)
            good += wanted[0][0] == 0
            fine += is_message(raw)
        assert ROUNDS // 5 < good < fine < ROUNDS

    play(tmp_path, scenario)
