"""``ModelConfig``: the configuration that ``auto_complete_config`` fills in."""

from __future__ import annotations

import json
from typing import Any

_INPUT_PROPERTIES = ("name", "data_type", "dims", "optional")
_OUTPUT_PROPERTIES = ("name", "data_type", "dims")


class ModelConfig:
    """A model configuration, given as JSON.

    Every method that changes it raises ValueError when that contradicts what the configuration file says.
    """

    def __init__(self, model_config: str) -> None:
        self._model_config: dict[str, Any] = json.loads(model_config)

    def as_dict(self) -> dict[str, Any]:
        """The configuration itself, as in the reference: what a model changes in it counts."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set the largest batch; one that the file names must not be larger."""
        found = self._model_config.get("max_batch_size", 0)
        if found > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {found}, but in auto-complete-config function for model "
                f"'{self._name()}' specified max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Choose the dynamic batcher, unless the file has chosen it already; no other scheduler may be there."""
        for scheduler in ("sequence_batching", "ensemble_scheduling"):
            if scheduler in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{scheduler}', but auto-complete-config function "
                    f"for model '{self._name()}' tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input: dict[str, Any]) -> None:
        """Add an input with ``name``, ``data_type``, ``dims`` and perhaps ``optional``."""
        self._add("input", input, _INPUT_PROPERTIES, "'name', 'data_type', 'dims' and 'optional'")

    def add_output(self, output: dict[str, Any]) -> None:
        """Add an output with ``name``, ``data_type`` and ``dims``."""
        self._add("output", output, _OUTPUT_PROPERTIES, "'name', 'data_type' and 'dims'")

    def set_model_transaction_policy(self, transaction_policy_dict: dict[str, bool]) -> None:
        """Set with ``{"decoupled": bool}`` whether the model may send any number of responses to a request."""
        if any(key != "decoupled" for key in transaction_policy_dict):
            raise ValueError(
                f"model transaction property in auto-complete-config function for model '{self._name()}' contains "
                "property other than 'decoupled'."
            )
        policy = self._model_config.setdefault("model_transaction_policy", {})
        for decoupled in transaction_policy_dict.values():
            # Also a false in the file is a decision, as in the reference.
            if policy.get("decoupled", decoupled) != decoupled:
                raise ValueError(
                    f"trying to change decoupled property in auto-complete-config for model '{self._name()}', which is "
                    f"already set to '{policy['decoupled']}'."
                )
            policy["decoupled"] = decoupled

    def _name(self) -> str:
        return str(self._model_config.get("name", ""))

    def _add(self, kind: str, tensor: dict[str, Any], allowed: tuple[str, ...], allowed_text: str) -> None:
        self._check_properties(kind, tensor, allowed, allowed_text)
        tensors = self._model_config.setdefault(kind, [])
        for found in tensors:
            if found["name"] == tensor["name"]:
                self._check_agreement(kind, found, tensor)
                found.update(tensor)
                return
        tensors.append(dict(tensor))

    def _check_properties(self, kind: str, tensor: dict[str, Any], allowed: tuple[str, ...], allowed_text: str) -> None:
        where = f"in auto-complete-config function for model '{self._name()}'"
        if "name" not in tensor:
            raise ValueError(f"{kind} {where} is missing 'name' property.")
        if any(key not in allowed for key in tensor):
            raise ValueError(f"{kind} '{tensor['name']}' {where} contains property other than {allowed_text}.")
        for key in ("data_type", "dims"):
            if key not in tensor:
                raise ValueError(f"{kind} '{tensor['name']}' {where} is missing '{key}' property.")

    def _check_agreement(self, kind: str, found: dict[str, Any], tensor: dict[str, Any]) -> None:
        name = tensor["name"]
        data_type = found.get("data_type", "TYPE_INVALID")
        if data_type not in ("TYPE_INVALID", tensor["data_type"]):
            raise ValueError(
                f"unable to load model '{self._name()}', configuration expects datatype {data_type} for {kind} "
                f"'{name}', model provides {tensor['data_type']}"
            )
        for key in ("dims", "optional"):
            ours, theirs = found.get(key), tensor.get(key)
            # A field that the file leaves empty agrees with everything.
            if ours and key in tensor and ours != theirs:
                raise ValueError(
                    f"model '{self._name()}', tensor '{name}': the model expects {key} {theirs} but the model "
                    f"configuration specifies {key} {ours}"
                )
