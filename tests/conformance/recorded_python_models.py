"""The Python models that the recorded requests ask for."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from conformance.recorded_models import ONE_ON_THE_CPU, TYPES
from support.served_models import tensor

HEAD = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

def array(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()

def one(name, values):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, values)])
"""
SUM_AND_DIFFERENCE = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(array(r, "INPUT0"), array(r, "INPUT1")) for r in requests]

    def answer(self, a, b):
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)])
"""
SAME = """
class TritonPythonModel:
    def execute(self, requests):
        return [one("OUTPUT0", array(r, "INPUT0")) for r in requests]
"""
ALL_TYPES = """
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(list(self.outputs(r))) for r in requests]

    def outputs(self, request):
        for given in request.inputs():
            name = given.name().replace("IN_", "OUT_")
            if name in request.requested_output_names():
                yield pb_utils.Tensor(name, given.as_numpy())
"""
BF16 = """
class TritonPythonModel:
    def execute(self, requests):
        return [one("OUT", np.array([1.5, -2.25], np.float32)) for _ in requests]
"""
ECHO = """
class TritonPythonModel:
    def execute(self, requests):
        return [one("OUT", np.array([json.dumps(self.told(r), sort_keys=True)], object)) for r in requests]

    def told(self, request):
        return {
            "parameters": json.loads(request.parameters()),
            "request_id": request.request_id(),
            "correlation_id": request.correlation_id(),
            "flags": request.flags(),
            "timeout": request.timeout(),
            "dir": sorted(name for name in dir(request) if name[0] != "_"),
            "outputs": list(request.requested_output_names()),
        }
"""
GIVES_PARAMETERS = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(array(r, "IN")) for r in requests]

    def answer(self, values):
        said = {"s": "text", "i": 7, "b": True}
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)], parameters=said)
"""
# How it fails is told by the number of its input.
FAILS = """
CODES = ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED")

class TritonPythonModel:
    def execute(self, requests):
        mode = int(array(requests[0], "MODE").flat[0])
        if mode == 1:
            raise RuntimeError("boom from model")
        if mode == 22:
            return []
        if mode == 23:
            return None
        return [self.answer(mode)]

    def answer(self, mode):
        number = pb_utils.Tensor("OUT", np.array([mode], np.int32))
        if mode == 2:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("model says no"))
        if 3 <= mode <= 10:
            code = getattr(pb_utils.TritonError, CODES[mode - 3])
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"model error code {mode}", code))
        if mode == 20:
            return one("OUT", np.array([1.0]))
        if mode == 24:
            return pb_utils.InferenceResponse([number, pb_utils.Tensor("NOPE", np.array([1], np.int32))])
        if mode == 25:
            return pb_utils.InferenceResponse([])
        return 7 if mode == 27 else pb_utils.InferenceResponse([number])
"""
COMPLETES_ITSELF = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(4)
        config.{more}
        config.add_input({{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1, 2]}})
        config.add_input({{"name": "INPUT1", "data_type": "TYPE_INT64", "dims": [1], "optional": True}})
        config.add_output({{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1, 2]}})
        return config

    def execute(self, requests):
        return [one("OUTPUT0", array(r, "INPUT0")) for r in requests]
"""
# -2: fails as a whole; -4: the end comes with the data.
REPEATS = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count = int(array(request, "REPEAT").flat[0])
            if count == -2:
                raise RuntimeError("decoupled boom")
            self.answer(count, request.get_response_sender())

    def answer(self, count, sender):
        if count == -4:
            sender.send(one("OUT", np.array([0], np.int32)), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return
        for i in range(count):
            sender.send(one("OUT", np.array([i], np.int32)))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
GENERATES = """
class TritonPythonModel:
    def execute(self, requests):
        return [one("text_output", np.array([self.text(r)], object)) for r in requests]

    def text(self, request):
        return array(request, "text_input").item().decode() + "|" + request.parameters()
"""
WORDS = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            text = array(request, "text_input").item()
            if text == b"error":
                refused = pb_utils.InferenceResponse(error=pb_utils.TritonError("generation refused"))
                sender.send(refused, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                continue
            for word in text.split():
                sender.send(pb_utils.InferenceResponse([
                    pb_utils.Tensor("text_output", np.array([word], object)),
                    pb_utils.Tensor("n", np.array([len(word)], np.int32)),
                ]))
                if word == b"midfail":
                    sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("mid generation failure")))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
CALLS_ANOTHER = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(r.inputs()) for r in requests]

    def answer(self, tensors):
        answer = pb_utils.InferenceRequest(
            model_name="simple", requested_output_names=["OUTPUT0", "OUTPUT1"], inputs=tensors
        ).exec()
        return pb_utils.InferenceResponse(answer.output_tensors(), error=answer.error())
"""
DECOUPLED = "model_transaction_policy { decoupled: true }"


def write_repository(repository: Path) -> None:
    """Write every model."""
    _write_simple(repository, "simple")
    _write_simple(repository, "simple_versions", "version_policy { specific { versions: [ 1, 3 ] } }", (1, 2, 3))
    _write_simple(repository, "simple_latest2", "version_policy { latest { num_versions: 2 } }", (1, 2, 10))
    queue = "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 100 }"
    _write_simple(repository, "simple_dyn", queue)
    _write_simple(repository, "bls_simple", source=CALLS_ANOTHER)
    _write_same(repository, "identity_fp32", "TYPE_FP32", "-1", 64, more="dynamic_batching { }")
    _write_same(repository, "identity_bytes", "TYPE_STRING", "-1", 8)
    _write_same(repository, "reshape", "TYPE_FP32", "4", 0, "reshape { shape: [ 2, 2 ] }")
    _write_same(repository, "scalar", "TYPE_FP32", "1", 8, "reshape { shape: [ ] }")
    _write_others(repository)
    _write_completed(repository)


def _write_others(repository: Path) -> None:
    count, number = (tensor(n, "TYPE_INT32", "1") for n in ("REPEAT", "n"))
    delay = tensor("DELAY", "TYPE_UINT32", "1", "optional: true")
    words = tensor("text_output", "TYPE_STRING", "1")
    ones = {t: tensor("OUT", f"TYPE_{t}", "1") for t in ("INT32", "STRING")}
    given = [tensor(f"IN_{t}", f"TYPE_{t}", "-1", "optional: true") for t in TYPES]
    _write(repository, "types", ALL_TYPES, given, [tensor(f"OUT_{t}", f"TYPE_{t}", "-1") for t in TYPES])
    _write(repository, "bf16", BF16, [tensor("IN", "TYPE_BF16", "-1")], [tensor("OUT", "TYPE_FP32", "-1")])
    _write(repository, "echo", ECHO, [tensor("IN", "TYPE_INT32", "-1")], [ones["STRING"]])
    number_in, number_out = (tensor(n, "TYPE_INT32", "-1") for n in ("IN", "OUT"))
    _write(repository, "resp_params", GIVES_PARAMETERS, [number_in], [number_out])
    _write(repository, "fail", FAILS, [tensor("MODE", "TYPE_INT32", "1")], [ones["INT32"]])
    _write(repository, "repeat", REPEATS, [count, delay], [ones["INT32"]], DECOUPLED)
    text_in, text_out = (tensor(n, "TYPE_STRING", "1") for n in ("text_input", "text_output"))
    optional = (
        '{ name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] optional: true }',
        '{ name: "temps" data_type: TYPE_FP32 dims: [ -1 ] optional: true }',
    )
    _write(repository, "gen", GENERATES, [text_in, *optional], [text_out])
    _write(repository, "gen_stream", WORDS, [tensor("text_input", "TYPE_STRING", "1")], [words, number], DECOUPLED)


def _write_completed(repository: Path) -> None:
    for name, more in (
        ("auto_full", "set_dynamic_batching()"),
        ("auto_decoupled", 'set_model_transaction_policy({"decoupled": True})'),
    ):
        _write_source(repository / name / "1", COMPLETES_ITSELF.format(more=more))


def _write_simple(
    repository: Path, name: str, more: str = "", versions: Sequence[int] = (1,), source: str = SUM_AND_DIFFERENCE
) -> None:
    inputs, outputs = ([tensor(f"{kind}{i}", "TYPE_INT32", "16") for i in (0, 1)] for kind in ("INPUT", "OUTPUT"))
    _write(repository, name, source, inputs, outputs, more, 8, versions)


def _write_same(
    repository: Path, name: str, data_type: str, dims: str, max_batch_size: int, reshape: str = "", more: str = ""
) -> None:
    given, made = (tensor(n, data_type, dims, reshape) for n in ("INPUT0", "OUTPUT0"))
    _write(repository, name, SAME, [given], [made], more, max_batch_size)


def _write(
    repository: Path,
    name: str,
    source: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    more: str = "",
    max_batch_size: int = 0,
    versions: Sequence[int] = (1,),
) -> None:
    for version in versions:
        _write_source(repository / name / str(version), source)
    (repository / name / "config.pbtxt").write_text(f"""
        name: "{name}" backend: "python" max_batch_size: {max_batch_size}
        input [ {", ".join(inputs)} ] output [ {", ".join(outputs)} ] {ONE_ON_THE_CPU} {more}""")


def _write_source(folder: Path, source: str) -> None:
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(HEAD + textwrap.dedent(source))
