"""The repositories of Python models that the cases are measured on; the reference server loads the same files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from .models import Array, add_model, tensor_field

ONE_INSTANCE = "instance_group [ { kind: KIND_CPU count: 1 } ]"
CHAIN_STEPS = 1000
CHAIN_BATCHING = "dynamic_batching { preferred_batch_size: [ 4, 8, 16 ] max_queue_delay_microseconds: 100 }"

IDENTITY = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        given = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("OUTPUT0", given)])
"""

CHAIN = f"""\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        steps = np.arange({CHAIN_STEPS}, dtype=np.float32)
        self.scales = 1 + np.sin(steps) / np.float32(1000)
        self.shifts = np.cos(steps) / np.float32(1000)

    def execute(self, requests):
        rows = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        values = np.concatenate(rows)
        for step in range({CHAIN_STEPS}):
            values = values * self.scales[step] + self.shifts[step]
        ends = np.cumsum([len(part) for part in rows])
        parts = np.split(values, ends[:-1])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", part)]) for part in parts]
"""

TOTALS = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.totals = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        def one(name):
            return pb_utils.get_input_tensor_by_name(request, name).as_numpy()

        value = one("INPUT0")
        if one("READY")[0, 0]:
            key = int(one("CORRID")[0, 0])
            if not one("START")[0, 0]:
                value = value + self.totals[key]
            self.totals[key] = value
            if one("END")[0, 0]:
                del self.totals[key]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", value)])
"""
CONTROLS = """control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "END" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] },
    { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }
]"""

SPINNER = """\
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.spin(request) for request in requests]

    def spin(self, request):
        seconds = float(pb_utils.get_input_tensor_by_name(request, "SECONDS").as_numpy()[0])
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
        return pb_utils.InferenceResponse([pb_utils.Tensor("PID", np.array([os.getpid()], np.int64))])
"""


DECOUPLED = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
            sender = request.get_response_sender()
            for number in range(count):
                output = pb_utils.Tensor("NUMBER", np.array([number], np.int32))
                sender.send(pb_utils.InferenceResponse([output]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
TOKENS = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(%d):
                output = pb_utils.Tensor("text_output", np.array([b"token "], np.object_))
                sender.send(pb_utils.InferenceResponse([output]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
IS_DECOUPLED = "model_transaction_policy { decoupled: true }"


def add_python_model(repository: Path, name: str, code: str, *fields: str) -> None:
    """Write one Python model with one instance."""
    version = add_model(repository, name, 'backend: "python"', *fields, ONE_INSTANCE)
    (version / "model.py").write_text(code)


def add_python_identity(
    repository: Path, name: str = "python_identity", more: str = "", batching: str = "dynamic_batching { }"
) -> None:
    """A model that gives FP32 [-1] INPUT0 back as OUTPUT0, up to 64 rows at once; ``more`` is configuration."""
    tensors = _from_input_to_output(-1)
    add_python_model(repository, name, IDENTITY, "max_batch_size: 64", *tensors, f"{batching} {more}")


def add_decoupled(repository: Path, name: str) -> None:
    """A model that answers COUNT, an INT32, so many times with NUMBER, counting from 0."""
    tensors = tensor_field("input", "COUNT", "TYPE_INT32", [1]), tensor_field("output", "NUMBER", "TYPE_INT32", [1])
    add_python_model(repository, name, DECOUPLED, *tensors, IS_DECOUPLED)


def add_tokens(repository: Path, name: str, count: int) -> None:
    """A language model that says one token ``count`` times, each as a part."""
    tensors = (
        tensor_field("input", "text_input", "TYPE_STRING", [1]),
        tensor_field("input", "stream", "TYPE_BOOL", [1]),
        tensor_field("output", "text_output", "TYPE_STRING", [1]),
    )
    add_python_model(repository, name, TOKENS % count, *tensors, IS_DECOUPLED)


def add_square(repository: Path, name: str) -> None:
    """A model of the built-in backend ``square``, which answers IN so many times with OUT."""
    tensors = tensor_field("input", "IN", "TYPE_INT32", [1]), tensor_field("output", "OUT", "TYPE_INT32", [1])
    add_model(repository, name, 'backend: "square"', *tensors, IS_DECOUPLED, ONE_INSTANCE)


def add_python_ensemble(repository: Path, name: str) -> None:
    """An ensemble of ``<name>_add`` and ``<name>_double``: FP32 [-1] INPUT0 to (INPUT0 + 1) * 2, batched up to 64."""
    for part, change in (("add", "given + np.float32(1)"), ("double", "given * np.float32(2)")):
        code = "import numpy as np\n" + IDENTITY.replace('"OUTPUT0", given', f'"OUTPUT0", {change}')
        tensors = _from_input_to_output(-1)
        add_python_model(repository, f"{name}_{part}", code, "max_batch_size: 64", *tensors, "dynamic_batching { }")
    steps = ", ".join(
        f'{{ model_name: "{name}_{part}" model_version: -1 input_map {{ key: "INPUT0" value: "{given}" }} '
        f'output_map {{ key: "OUTPUT0" value: "{made}" }} }}'
        for part, given, made in (("add", "INPUT0", "more"), ("double", "more", "OUTPUT0"))
    )
    fields = ("max_batch_size: 64", *_from_input_to_output(-1), f"ensemble_scheduling {{ step [ {steps} ] }}")
    add_model(repository, name, 'platform: "ensemble"', *fields)


def add_large(repository: Path, name: str) -> None:
    """A model that holds 200 MB, and gives FP32 [-1] INPUT0 back as OUTPUT0."""
    holds = "    def initialize(self, args):\n        self.held = np.ones(25_000_000)\n\n    def execute("
    code = "import numpy as np\n" + IDENTITY.replace("    def execute(", holds, 1)
    add_python_model(repository, name, code, "max_batch_size: 64", *_from_input_to_output(-1))


def add_python_chains(repository: Path) -> None:
    """``python_chain`` (batched dynamically up to 16) and ``python_unbatched``, the same 1000 small steps of numpy."""
    for name, scheduling in (("python_chain", CHAIN_BATCHING), ("python_unbatched", "")):
        add_python_model(repository, name, CHAIN, "max_batch_size: 16", *_from_input_to_output(1), scheduling)


STRATEGIES = {
    "sequence_direct": "direct { }",
    "sequence_oldest": "oldest { max_candidate_sequences: 16 max_queue_delay_microseconds: 100 "
    "preferred_batch_size: [ 4 ] }",
}


def add_totals(repository: Path, names: Iterable[str] = STRATEGIES, idle_s: int = 5) -> None:
    """``sequence_direct`` and ``sequence_oldest``: each sequence adds up its FP32 [1] INPUT0; up to 16 at a time.

    A sequence without a request for longer than ``idle_s`` seconds is given up.
    """
    for name in names:
        idle = f"max_sequence_idle_microseconds: {idle_s * 1_000_000}"
        section = f"sequence_batching {{ {idle} {STRATEGIES[name]} {CONTROLS} }}"
        add_python_model(repository, name, TOTALS, "max_batch_size: 16", *_from_input_to_output(1), section)


def chain_by_hand(x: Array) -> Array:
    """What the chain answers to ``x``, FP32 [rows, 1]."""
    steps = np.arange(CHAIN_STEPS, dtype=np.float32)
    values = x
    for scale, shift in zip(1 + np.sin(steps) / np.float32(1000), np.cos(steps) / np.float32(1000), strict=True):
        values = values * scale + shift
    return values


def add_spinner(repository: Path, name: str = "spinner") -> None:
    """A model that runs a Python loop for FP32 [1] SECONDS and then tells the INT64 [1] PID of its process."""
    tensors = tensor_field("input", "SECONDS", "TYPE_FP32", [1]), tensor_field("output", "PID", "TYPE_INT64", [1])
    add_python_model(repository, name, SPINNER, "max_batch_size: 0", *tensors)


def _from_input_to_output(values: int) -> tuple[str, str]:
    return (
        tensor_field("input", "INPUT0", "TYPE_FP32", [values]),
        tensor_field("output", "OUTPUT0", "TYPE_FP32", [values]),
    )
