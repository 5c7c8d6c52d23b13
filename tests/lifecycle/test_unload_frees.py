"""Unloaded models are freed by their reference counts: what is loaded at the start is kept from the garbage collector,
so that a reference cycle would stay for good."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from naiad.cache.redis import RedisCache
from naiad.execution.model.rate_limits import RateLimits
from naiad.options.redis_config import RedisSettings
from naiad.request import SEQUENCE_START, RequestOptions
from support.config_texts import parameter
from support.event_loops import until
from support.explicit_manager import CONFIG, GONE, House, answered, caller, play
from support.http_application import identity_config

ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor(
            "OUTPUT0", pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy())]) for request in requests]
"""
ONNX = """<ir_version: 8, opset_import: ["": 17]>
plain (float[n, 1] INPUT0) => (float[n, 1] OUTPUT0) { OUTPUT0 = Identity (INPUT0) }"""
TENSOR = ("0", "TYPE_FP32", "[ 1 ]")
PYTHON = identity_config(TENSOR, more="max_batch_size: 4").replace("identity", "python", 1)
# With a delay it runs in a thread rather than on the loop.
THREAD = CONFIG + parameter("execute_delay_ms", 1)
WARMUP = """model_warmup { name: "one" batch_size: 1 inputs {
    key: "INPUT0" value { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } }"""
SEQUENCES = "sequence_batching { direct { } }"
IN_PROCESS = identity_config(TENSOR, more="max_batch_size: 4").replace("identity", "onnxruntime", 1)
CONFIGS: Mapping[str, str] = {
    "plain": THREAD,
    "limited": THREAD,
    "cached": THREAD + "response_cache { enable: true }",
    "sequences": THREAD + SEQUENCES,
    "batching": THREAD + "dynamic_batching { }",
    "python": PYTHON + WARMUP + parameter("execute-timeout-seconds", 60),
    "python batching": PYTHON + "dynamic_batching { }",
    "python sequences": PYTHON + SEQUENCES,
    "process": IN_PROCESS + parameter("execution", "process"),
    "shared": IN_PROCESS + parameter("execution", "shared"),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_model_that_was_unloaded_needs_no_collector(tmp_path: Path, kind: str) -> None:
    # Nobody listens there, which makes no difference to who knows whom.
    cache = RedisCache(RedisSettings("127.0.0.1", 9)) if kind == "cached" else None
    settings: dict[str, Any] = {"cache": cache, "limits": RateLimits() if kind == "limited" else None}

    async def scenario(found: House) -> None:
        found.write("m", CONFIGS[kind])
        if "python" in kind:
            (found.repository / "m" / "1" / "model.py").write_text(ECHO)
        elif "onnxruntime" in CONFIGS[kind]:
            onnx.save(onnx.parser.parse_model(ONNX), found.repository / "m" / "1" / "model.onnx")
        await found.manager.load_model("m")
        model = found.engine.find("m", None)
        one = caller()
        if "sequences" in kind:
            one.options = RequestOptions(("OUTPUT0",), 1, flags=SEQUENCE_START, correlation_id=7)
        model.submit(one)
        await answered(one)
        gone = [weakref.ref(part) for part in (model, *model.instances)]
        del model, one
        gc.collect()
        gc.disable()
        try:
            await found.manager.unload_model("m")
            await found.done({"m:1": GONE})
            await until(lambda: all(part() is None for part in gone))
        finally:
            gc.enable()

    try:
        play(tmp_path, scenario, **settings)
    finally:
        if cache is not None:
            cache.close()
