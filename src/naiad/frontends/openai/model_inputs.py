"""A request of OpenAI's API as the inputs of a model.

There are two kinds of models: those of the backend for vLLM take their sampling parameters as one JSON text, those of
the backend for TensorRT-LLM have an input for each. A Python model may be of either kind. Source: the reference's front
end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from naiad.config.spec import ModelSpec
from naiad.errors import InvalidArgumentError
from naiad.wire.openai.chat_request import ChatRequest
from naiad.wire.openai.completion_request import CompletionRequest
from naiad.wire.openai.embedding_request import EmbeddingRequest
from naiad.wire.openai.generated import TEXT

PROMPT: Final = "text_input"
_EMBEDDING: Final = "embedding_request"
_PARAMETERS: Final = "sampling_parameters"
VLLM: Final = "vllm"
TENSORRT_LLM: Final = "tensorrtllm"
_WITHOUT_PROMPT: Final = ("exclude_input_in_output", "sampling_param_exclude_input_from_output")
"""The inputs by which a model leaves the prompt out of its text, in different backends."""
_MAX_SEED: Final = 1 << 64
_COUNTS: Final = {"return_num_input_tokens": True, "return_num_output_tokens": True}


def kind_of(spec: ModelSpec, wanted: str) -> str:
    """The kind of a model: the one that is ``wanted`` for all of them, else what its backend and its inputs say."""
    is_vllm = spec.backend == VLLM or _PARAMETERS in spec.inputs or _EMBEDDING in spec.inputs
    return wanted or (VLLM if is_vllm else TENSORRT_LLM)


def generation_inputs(
    request: ChatRequest | CompletionRequest, prompt: str, spec: ModelSpec, kind: str, adapter: str, max_tokens: int
) -> dict[str, Any]:
    """The values of the inputs for a text that follows ``prompt``, those that the model has.

    Args:
        spec: of the model.
        kind: ``VLLM`` or ``TENSORRT_LLM``.
        adapter: the LoRA adapter to use, "" for none.
        max_tokens: the most tokens to generate where the request does not say.

    Raises:
        InvalidArgumentError: the model generates no text from text, or cannot do what the request wants.
    """
    _check_has(spec, PROMPT, TEXT)
    sampling = request.sampling
    most = max_tokens if sampling.max_tokens is None else sampling.max_tokens
    echo = isinstance(request, CompletionRequest) and request.echo
    values: dict[str, Any] = {PROMPT: prompt, "stream": sampling.stream, **_COUNTS, "return_finish_reason": True}
    values |= dict.fromkeys(_WITHOUT_PROMPT, not echo)
    schema = _schema(request)
    if kind == VLLM:
        values["return_logprobs"] = sampling.logprobs is not None
        values[_PARAMETERS] = _vllm_parameters(request, most, adapter, schema)
    else:
        if adapter:
            raise InvalidArgumentError(f"LoRA adapters are supported for vLLM models only, and '{spec.name}' is none")
        values |= _separate_parameters(request, most, spec)
        values |= _guide(schema, spec)
    return {name: value for name, value in values.items() if name in spec.inputs}


def embedding_inputs(request: EmbeddingRequest, spec: ModelSpec, kind: str) -> dict[str, Any]:
    """The values of the inputs for an embedding, those that the model has.

    Raises:
        InvalidArgumentError: the model makes no embeddings.
    """
    if kind != VLLM:
        raise InvalidArgumentError("TRT-LLM backend and Python backend do not support embedding requests")
    _check_has(spec, _EMBEDDING, TEXT)
    pooling = {} if request.dimensions is None else {"dimensions": [request.dimensions]}
    wanted = orjson.dumps({"input": request.input, "pooling_params": pooling}).decode()
    values = {_EMBEDDING: wanted, **_COUNTS}
    return {name: value for name, value in values.items() if name in spec.inputs}


def _check_has(spec: ModelSpec, given: str, made: str) -> None:
    for name, tensors, kind in ((given, spec.inputs, "input"), (made, spec.outputs, "output")):
        if name not in tensors:
            found = ", ".join(f"'{other}'" for other in tensors)
            raise InvalidArgumentError(
                f"model '{spec.name}' cannot serve this API: it has no {kind} '{name}', only {found}"
            )
        if not tensors[name].dtype.is_bytes:
            raise InvalidArgumentError(f"model '{spec.name}' cannot serve this API: its {kind} '{name}' is no text")


def _vllm_parameters(
    request: ChatRequest | CompletionRequest, max_tokens: int, adapter: str, schema: Mapping[str, Any] | None
) -> str:
    sampling = request.sampling
    parameters = {name: value for name, value in sampling.values.items() if value is not None}
    parameters["max_tokens"] = max_tokens
    if sampling.logprobs is not None:
        parameters["logprobs"] = sampling.logprobs
    if adapter:
        parameters["lora_name"] = adapter
    if schema is not None:
        # As JSON in JSON, which the backend reads into an object of vLLM.
        parameters["structured_outputs"] = _schema_json(schema)
    return orjson.dumps(parameters).decode()


def _separate_parameters(request: ChatRequest | CompletionRequest, max_tokens: int, spec: ModelSpec) -> dict[str, Any]:
    values = request.sampling.values
    found = {"max_tokens": max_tokens, "stop_words": request.sampling.stop or None}
    for name in ("top_p", "frequency_penalty", "presence_penalty", "temperature", "min_tokens"):
        found[name] = values[name]
    found["seed"] = _seed(values["seed"], spec)
    return {name: value for name, value in found.items() if value is not None}


def _seed(seed: int | None, spec: ModelSpec) -> int | None:
    """The seed as the model's input takes it: OpenAI's API has negative ones."""
    if seed is None or seed >= 0 or "seed" not in spec.inputs:
        return seed
    return seed % _MAX_SEED if spec.inputs["seed"].dtype.wire == "UINT64" else seed


def _schema(request: ChatRequest | CompletionRequest) -> dict[str, Any] | None:
    """What the text has to fit, as vLLM's ``StructuredOutputsParams`` says it; None for anything."""
    if not isinstance(request, ChatRequest):
        return None
    if request.forced:
        return {"json": request.forced_parameters}
    wanted = request.values["response_format"] or {}
    if wanted.get("type") == "json_schema":
        return {"json": (wanted.get("json_schema") or {}).get("schema") or {}}
    return {"json_object": True} if wanted.get("type") == "json_object" else None


def _guide(schema: Mapping[str, Any] | None, spec: ModelSpec) -> dict[str, Any]:
    """The inputs by which a model of TensorRT-LLM is told what its text has to fit."""
    if schema is None:
        return {}
    if "guided_decoding_guide_type" not in spec.inputs:
        raise InvalidArgumentError(
            f"model '{spec.name}' cannot be told what its text has to fit: it has no input "
            "'guided_decoding_guide_type', so 'response_format' and forced tools are not supported"
        )
    if "json" not in schema:
        return {"guided_decoding_guide_type": "json"}
    return {"guided_decoding_guide_type": "json_schema", "guided_decoding_guide": _schema_json(schema["json"])}


def _schema_json(schema: Mapping[str, Any]) -> str:
    try:
        return orjson.dumps(schema).decode()
    except TypeError:
        # What can be read may be nested deeper than what can be written.
        raise InvalidArgumentError("the JSON schema that the text has to fit is nested too deep") from None
