"""``custom_identity_int32`` and ``repeat_int32``: models of backends that are part of the server, without files."""

from __future__ import annotations

from typing import Final

from naiad.quickstart.example_model import ExampleModel, tensor_request, tensors

CUSTOM_IDENTITY_INT32: Final = ExampleModel(
    "custom_identity_int32",
    "gives back its INT32 input; runs in the server's backend 'identity'",
    'name: "custom_identity_int32"\nbackend: "identity"\nmax_batch_size: 1024\n'
    "version_policy: { latest { num_versions: 1 } }\ninstance_group [ { kind: KIND_CPU } ]\n"
    + tensors("input", "INT32", [-1], "INPUT0")
    + tensors("output", "INT32", [-1], "OUTPUT0"),
    request=tensor_request(INPUT0=("INT32", [1, 4], [1, 2, 3, 4])),
)
REPEAT_INT32: Final = ExampleModel(
    "repeat_int32",
    "a response for each element of IN (decoupled); runs in the server's backend 'repeat'",
    'name: "repeat_int32"\nbackend: "repeat"\nmax_batch_size: 0\nmodel_transaction_policy {\n  decoupled: True\n}\n'
    + tensors("input", "INT32", [-1], "IN")
    + tensors("input", "UINT32", [-1], "DELAY")
    + tensors("input", "UINT32", [1], "WAIT")
    + tensors("output", "INT32", [1], "OUT")
    + tensors("output", "UINT32", [1], "IDX"),
)
