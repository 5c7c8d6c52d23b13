"""Python models that stand for language models: they take and give what the backends for vLLM and TensorRT-LLM do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from naiad import testing
from naiad.testing import serving
from support.server_port import ServerPort, server_port

OPENAI: Final = ("--allow-openai=true", "--openai-address=127.0.0.1", "--openai-port=0")
TEMPLATE: Final = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}"
    "{% for call in m.tool_calls or [] %} {{ call.function.name }}({{ call.function.arguments | tojson }}){% endfor %}"
    "{{ '\\n' }}{% endfor %}{% if tools %}{{ tools | tojson }}{{ '\\n' }}{% endif %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)

# Says what it was given, or the lines of its prompt that begin with "say ", each as a part.
_SOURCE: Final = """
import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def shown(value):
    return value.decode() if isinstance(value, bytes) else value


def given(request):
    return {t.name(): [shown(v) for v in t.as_numpy().reshape(-1).tolist()] for t in request.inputs()}


class TritonPythonModel:
    def initialize(self, args):
        outputs = json.loads(args["model_config"])["output"]
        self.shapes = {o["name"]: [max(1, int(d)) for d in o["dims"]] for o in outputs}

    def response(self, text, **more):
        values = {"text_output": text, "num_input_tokens": 3, "num_output_tokens": 1, **more}
        dtypes = {"num_input_tokens": np.uint32, "num_output_tokens": np.uint32}
        tensors = [
            pb_utils.Tensor(n, np.array([v], dtypes.get(n, np.object_)).reshape(self.shapes[n]))
            for n, v in values.items()
            if n in self.shapes
        ]
        return pb_utils.InferenceResponse(tensors)

    def parts(self, found):
        lines = found["text_input"][0].split("\\n")
        said = [line.partition("say ")[2] for line in lines if "say " in line]
        return said or [json.dumps(found)]

    def execute(self, requests):
        for request in requests:
            found, sender = given(request), request.get_response_sender()
            if "embedding_request" in found:
                sender.send(self.response(json.dumps([0.5, len(found["embedding_request"][0])])), flags=1)
                continue
            parts = self.parts(found)
            if "fail at once" in parts:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("no luck")), flags=1)
                continue
            if not found["stream"][0]:
                parts = ["".join(parts)]
            self.send(request, sender, found, parts)

    def send(self, request, sender, found, parts):
        # The two numbers of log-probabilities are those of a token and of the next likely one.
        place = {"7": {"logprob": -0.5, "rank": 1, "decoded_token": "a"},
                 "9": {"logprob": -1.5, "rank": 2, "decoded_token": "b"}}
        for at, part in enumerate(parts):
            if part == "fail":
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("no luck")), flags=1)
                return
            if part == "wait":
                while not request.is_cancelled():
                    time.sleep(0.01)
                print("seen to be cancelled", flush=True)
                sender.send(flags=1)
                return
            more = {"logprobs": json.dumps([place]) if found.get("return_logprobs", [False])[0] else "null"}
            if "length" in part:
                more["finish_reason"] = "length"
            last = at == len(parts) - 1
            sender.send(self.response(part, **more), flags=1 if last else 0)
"""


def _tensors(kind: str, rows: Sequence[tuple[str, str, str]]) -> str:
    return "".join(
        f'{kind} {{ name: "{name}" data_type: TYPE_{type_} dims: [ {dims} ] '
        + ("optional: true " if kind == "input" and name not in ("text_input", "stream", "embedding_request") else "")
        + "}\n"
        for name, type_, dims in rows
    )


_DECOUPLED: Final = 'backend: "python" max_batch_size: 0 model_transaction_policy { decoupled: true }\n'
_COUNTS: Final = (("num_input_tokens", "UINT32", "1"), ("num_output_tokens", "UINT32", "1"))
_VLLM: Final = (
    _DECOUPLED
    + _tensors(
        "input",
        (
            ("text_input", "STRING", "1"),
            ("stream", "BOOL", "1"),
            ("sampling_parameters", "STRING", "1"),
            ("exclude_input_in_output", "BOOL", "1"),
            ("return_logprobs", "BOOL", "1"),
            ("return_finish_reason", "BOOL", "1"),
            ("return_num_input_tokens", "BOOL", "1"),
            ("return_num_output_tokens", "BOOL", "1"),
        ),
    )
    + _tensors(
        "output",
        (("text_output", "STRING", "-1"), ("finish_reason", "STRING", "-1"), ("logprobs", "STRING", "-1"), *_COUNTS),
    )
)
_TENSORRT: Final = (
    _DECOUPLED
    + _tensors(
        "input",
        (
            ("text_input", "STRING", "1, 1"),
            ("stream", "BOOL", "1, 1"),
            ("max_tokens", "INT32", "1, 1"),
            ("stop_words", "STRING", "1, -1"),
            ("temperature", "FP32", "1, 1"),
            ("seed", "UINT64", "1, 1"),
            ("guided_decoding_guide_type", "STRING", "1, 1"),
            ("guided_decoding_guide", "STRING", "1, 1"),
        ),
    )
    + _tensors("output", (("text_output", "STRING", "1, -1"),))
)
_EMBEDDER: Final = (
    _DECOUPLED
    + _tensors("input", (("embedding_request", "STRING", "1"), ("return_num_input_tokens", "BOOL", "1")))
    + _tensors("output", (("text_output", "STRING", "-1"), *_COUNTS))
)


def write_language_models(repository: Path) -> Path:
    """Write three: ``words`` of the kind of vLLM, ``talker`` of that of TensorRT-LLM, ``embedder`` for embeddings."""
    for name, config in (("words", _VLLM), ("talker", _TENSORRT), ("embedder", _EMBEDDER)):
        testing.write_model(repository, name, config, (1,), {"model.py": _SOURCE.encode()})
    return repository


def write_tokenizer(folder: Path) -> Path:
    """Write a tokenizer that has nothing but a template for chats."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@contextmanager
def openai_served(log: Path, *arguments: object) -> Iterator[ServerPort]:
    """A server that is ready, by its port for the API of OpenAI."""
    with serving(log, *OPENAI, *arguments) as running:
        yield server_port(running, "OpenAI")
        assert "handler failed" not in running.log
        assert "Traceback" not in running.log
        assert "could not be sent" not in running.log
