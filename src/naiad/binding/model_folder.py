"""The folder of a bound function in a model repository: its configuration, and what a worker needs to run it."""

from __future__ import annotations

import inspect
import json
import pickle
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from itertools import count
from pathlib import Path
from typing import Any, Final

from naiad.binding.function import PROCESS, BoundFunction, FunctionKind
from naiad.binding.tensor_types import TensorType
from naiad.errors import InvalidArgumentError

CALLABLE: Final = "callable"
"""The backend of functions in threads of the server."""
FUNCTION_FILE: Final = "function.pickle"
_NUMBER: Final = "bound_function"
_numbers = count(1)
_PACKAGE_FOLDER: Final = str(Path(__file__).resolve().parents[2])
_WORKER_MODEL: Final = "naiad.binding.worker_model"
_MODEL_PY: Final = '''"""Runs a bound function in this process."""
import sys

sys.path[:] = [p for p in {path!r} if p not in sys.path] + sys.path

from {module} import {base}


class TritonPythonModel({base}):
    pass
'''


def write_model_folder(repository: Path, bound: BoundFunction) -> Path:
    """Write the folder of a function, or write it anew; returns the folder.

    Raises:
        InvalidArgumentError: the function cannot be sent to a process.
    """
    folder = repository / bound.model
    version = folder / "1"
    version.mkdir(parents=True, exist_ok=True)
    if bound.workers == PROCESS:
        is_async = bound.kind in (FunctionKind.COROUTINE, FunctionKind.ASYNC_GENERATOR) and bound.batching is None
        base = "AsyncBoundModel" if is_async else "BoundModel"
        (version / FUNCTION_FILE).write_bytes(pickled(bound.model, bound, (bound.target,)))
        (version / "model.py").write_text(worker_model_file(_WORKER_MODEL, base), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(_config(bound), indent=1), encoding="utf-8")
    return folder


def worker_model_file(module: str, base: str) -> str:
    """The ``model.py`` of a function: a class of a module that a worker imports from where this program does."""
    path = [*(str(Path(p).resolve()) for p in sys.path), _PACKAGE_FOLDER]
    return _MODEL_PY.format(path=path, module=module, base=base)


def _config(bound: BoundFunction) -> dict[str, Any]:
    config: dict[str, Any] = {
        "name": bound.model,
        "backend": "python" if bound.workers == PROCESS else CALLABLE,
        "max_batch_size": 0 if bound.batching is None else bound.batching.max_rows,
        "input": [
            {"name": name, **_tensor(given.tensor), **({"optional": True} if given.optional else {})}
            for name, given in bound.signature.inputs.items()
        ],
        "output": [{"name": name, **_tensor(made)} for name, made in bound.signature.outputs.items()],
        "instance_group": [{"count": bound.instances, "kind": "KIND_CPU"}],
        # Another function of the same signature is another model, not more instances of this one.
        "parameters": {_NUMBER: {"string_value": str(next(_numbers))}},
    }
    if bound.batching is not None:
        config["dynamic_batching"] = {"max_queue_delay_microseconds": round(1000 * bound.batching.max_delay_ms)}
    if bound.kind.streams:
        config["model_transaction_policy"] = {"decoupled": True}
    return config


def _tensor(given: TensorType) -> dict[str, Any]:
    return {"data_type": given.data_type.config, "dims": list(given.dims)}


def pickled(model: str, content: object, targets: Sequence[Any]) -> bytes:
    """What a worker needs of a model, as a pickle.

    What lies in a module is imported there, if it can be; functions of the program's own file, of a notebook and
    lambdas are sent with their code.

    Args:
        content: what is pickled.
        targets: the functions, and objects or classes with functions, that it has.

    Raises:
        InvalidArgumentError: it cannot be sent to a process.
    """
    import cloudpickle

    found = {inspect.getmodule(t if inspect.isroutine(t) else _type_of(t)) for t in map(inspect.unwrap, targets)}
    by_value = [m for m in found if m is not None and m.__name__ != "__main__" and not _can_be_imported(m.__name__)]
    for module in by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        made: bytes = cloudpickle.dumps(content)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise InvalidArgumentError(
            f"model '{model}': its function cannot be sent to a process ({error}): open files, locks and loaded "
            "models in setup(), which runs in the process, or bind it with workers='thread'"
        ) from error
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)
    return made


def _type_of(target: Any) -> Any:
    return target if inspect.isclass(target) else type(target)


def _can_be_imported(name: str) -> bool:
    """Whether another process finds the module as well.

    What is only in ``sys.modules`` does not count: a test runner, for one, puts files there under names of its own.
    """
    path: Sequence[str] | None = None
    parts = name.split(".")
    for size in range(1, len(parts) + 1):
        spec = _found(".".join(parts[:size]), path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return True


def _found(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, path)
        except (ImportError, AttributeError, ValueError):
            continue
        if spec is not None:
            return spec
    return None
