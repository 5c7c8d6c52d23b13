"""The JSON schemas of requests and responses, for the OpenAPI document.

Source: the protocol's documents. Responses may have more members than these list.
"""

from __future__ import annotations

import re
from typing import Any, Final

_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_DATATYPES: Final = (
    *("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
    *("FP16", "BF16", "FP32", "FP64", "BYTES"),
)

_NAMED_VERSIONS: Final = {"type": "object", "additionalProperties": _TEXT}
_WEIGHTS: Final = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}}
_NULLABLE_OBJECT: Final = {"type": ["object", "null"]}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(item: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": item, **more}


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


_TENSOR: Final = _object(("name", "datatype", "shape"), name=_TEXT, datatype=_TEXT, shape=_list({"type": "integer"}))

_ENCODED: Final = {
    **_object(binary_data_encoding={"type": "string", "const": "base64"}),
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}

SCHEMAS: Final[dict[str, Any]] = {
    "Error": _object(("error",), error=_TEXT),
    "Anything": {"type": "object"},
    "Parameters": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
    "RequestParameters": {
        **_ENCODED,
        "description": "binary_data_encoding: outputs come as base64 text unless they say something else.",
    },
    "InputParameters": {**_ENCODED, "description": "binary_data_encoding: data is base64 text."},
    "OutputParameters": {**_ENCODED, "description": "binary_data_encoding: the output comes as base64 text."},
    "Base64": {
        **_object(("b64",), b64={"type": "string", "contentEncoding": "base64"}),
        "description": "The bytes of binary data: little-endian, row-major, BYTES with their lengths of 4 bytes.",
        "additionalProperties": False,
    },
    "InferRequest": _object(
        ("inputs",),
        id=_TEXT,
        parameters=_ref("RequestParameters"),
        inputs=_list(_ref("InputTensor"), minItems=1),
        outputs=_list(_ref("WantedOutput")),
    ),
    "InputTensor": _object(
        ("name", "datatype", "shape"),
        name=_TEXT,
        datatype={"type": "string", "enum": list(_DATATYPES)},
        shape=_list({"type": "integer", "minimum": 0}),
        data={"oneOf": [{"type": "array"}, _ref("Base64"), {"type": "string", "contentEncoding": "base64"}]},
        parameters=_ref("InputParameters"),
    ),
    "WantedOutput": _object(("name",), name=_TEXT, parameters=_ref("OutputParameters")),
    "InferResponse": _object(
        ("model_name", "model_version", "outputs"),
        id=_TEXT,
        model_name=_TEXT,
        model_version=_TEXT,
        parameters=_ref("Parameters"),
        outputs=_list(_ref("OutputTensor")),
    ),
    "OutputTensor": _object(
        ("name", "datatype", "shape"),
        name=_TEXT,
        datatype=_TEXT,
        shape=_list({"type": "integer"}),
        data={"oneOf": [{"type": "array"}, _ref("Base64")]},
        parameters=_ref("Parameters"),
    ),
    "ServerMetadata": _object(("name", "version", "extensions"), name=_TEXT, version=_TEXT, extensions=_list(_TEXT)),
    "ModelMetadata": _object(
        ("name", "platform", "inputs", "outputs"),
        name=_TEXT,
        versions=_list(_TEXT),
        platform=_TEXT,
        inputs=_list(_TENSOR),
        outputs=_list(_TENSOR),
    ),
    "ModelConfig": _object(("name",), name=_TEXT),
    "WrittenConfig": _object(
        ("version", "file", "lines", "written", "completed"),
        version=_TEXT,
        file={"type": ["string", "null"]},
        lines={"type": "object", "additionalProperties": _COUNT},
        written=_ref("ModelConfig"),
        completed=_ref("ModelConfig"),
        tuned={"type": "object"},
    ),
    "Statistics": _object(
        ("model_stats",),
        model_stats=_list(
            _object(
                ("name", "version"),
                name=_TEXT,
                version=_TEXT,
                last_inference=_COUNT,
                inference_count=_COUNT,
                execution_count=_COUNT,
            )
        ),
    ),
    "IndexRequest": _object(ready={"type": "boolean"}),
    "Index": _list(_object(("name",), name=_TEXT, version=_TEXT, state=_TEXT, reason=_TEXT)),
    "Regions": _list(
        _object(("name", "byte_size"), name=_TEXT, key=_TEXT, offset=_COUNT, device_id=_COUNT, byte_size=_COUNT)
    ),
    "SystemRegion": _object(("key", "byte_size"), key=_TEXT, offset=_COUNT, byte_size=_COUNT),
    "CudaRegion": _object(
        ("raw_handle", "device_id", "byte_size"),
        raw_handle=_object(("b64",), b64=_TEXT),
        device_id=_COUNT,
        byte_size=_COUNT,
    ),
    "LoadRequest": _object(parameters={"type": "object"}),
    "Routes": _object(
        ("model", "revision", "aliases", "split", "shadow"),
        model=_TEXT,
        revision=_COUNT,
        aliases=_NAMED_VERSIONS,
        split=_WEIGHTS,
        shadow=_NULLABLE_OBJECT,
        serving=_WEIGHTS,
        problems=_list(_object(("version", "reason"), version=_TEXT, reason=_TEXT)),
        sequences=_COUNT,
        shadow_statistics=_NULLABLE_OBJECT,
        history=_list({"type": "object"}),
    ),
    "RoutesChange": _object(aliases=_NULLABLE_OBJECT, split=_NULLABLE_OBJECT, shadow=_NULLABLE_OBJECT),
    "Promotion": _object(version={"type": ["string", "integer"]}, alias=_TEXT),
    "UnloadRequest": _object(parameters=_object(unload_dependents={"type": "boolean"})),
}

# The first match counts, here and below.
_REQUESTS: Final = (
    (r".*/infer", "InferRequest", True),
    (r".*/routes", "RoutesChange", False),
    (r".*/routes/promote", "Promotion", False),
    (r"/v2/repository.*/index", "IndexRequest", False),
    (r"/v2/repository.*/load", "LoadRequest", False),
    (r"/v2/repository.*/unload", "UnloadRequest", False),
    (r"/v2/systemsharedmemory.*/register", "SystemRegion", True),
    (r"/v2/cudasharedmemory.*/register", "CudaRegion", True),
)
_RESPONSES: Final = (
    (r"/v2/health/.*|.*/ready|/v2/repository.*/(?:un)?load", ""),
    (r".*sharedmemory.*/(?:un)?register", ""),
    (r".*/infer", "InferResponse"),
    (r".*/routes(?:/.*)?", "Routes"),
    (r"/v2", "ServerMetadata"),
    (r"/v2/models/\{model\}(?:/versions/\{version\})?", "ModelMetadata"),
    (r".*/config", "ModelConfig"),
    (r".*/config/written", "WrittenConfig"),
    (r"/v2/models/.*stats", "Statistics"),
    (r"/v2/repository.*/index", "Index"),
    (r".*sharedmemory.*/status", "Regions"),
)


def request_of(path: str) -> tuple[str, bool]:
    """The name of the schema of the request body for the path template ``path``, and whether the body is required."""
    return next(((name, needed) for form, name, needed in _REQUESTS if re.fullmatch(form, path)), ("Anything", False))


def response_of(path: str) -> str:
    """The name of the schema of the response for the path template ``path``; "" for an empty response."""
    return next((name for form, name in _RESPONSES if re.fullmatch(form, path)), "Anything")
