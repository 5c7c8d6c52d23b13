"""Importing a model's file."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, Sequence

from ..ipc.errors import TritonModelException


def load_model_class(model_py: str, version: str, paths: Sequence[str], package: str = "") -> Any:
    """Import the file and return its ``TritonPythonModel``.

    The folders of ``paths`` are appended to ``sys.path``. A file in a version's folder becomes a module of a package
    named like the version, so that it can import its neighbours relatively.

    Args:
        package: the name of the package, where several models share a process; the file becomes a module of it
            wherever it lies.

    Raises:
        TritonModelException: the name does not end with ``.py``, or there is no such file.
        AttributeError: the file has no such class.
        Exception: whatever the file raises.
    """
    folder, file = os.path.split(os.path.abspath(model_py))
    if not file.endswith(".py"):
        raise TritonModelException(f"Model name must end with '.py'. Model name is \"{file}\".")
    if not os.path.isfile(model_py):
        raise TritonModelException(f"Python model file not found in '{model_py}'")
    sys.path += [path for path in paths if path not in sys.path]
    is_alone = not package and os.path.basename(folder) != version
    name = file[: -len(".py")] if is_alone else _in_package(folder, file[: -len(".py")], package or version)
    module = _import(os.path.join(folder, file), name)
    try:
        return module.TritonPythonModel
    except AttributeError as error:
        raise AttributeError(f"{error}: {model_py} has to define this class") from None


def _in_package(folder: str, stem: str, name: str) -> str:
    package = ModuleType(name)
    package.__path__ = [folder]
    sys.modules[name] = package
    return f"{name}.{stem}"


class _FreshLoader(SourceFileLoader):
    """Compiles the file as it is now.

    Python uses cached bytecode when a file has the same size and was changed within the same second. A model that is
    edited and loaded again at once would run its earlier code.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _import(path: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, loader=_FreshLoader(name, path))
    if spec is None or spec.loader is None:
        raise TritonModelException(f"Python model file '{path}' cannot be imported")
    module = importlib.util.module_from_spec(spec)
    # Before it runs, as for any import: dataclasses and pickle find a module by its name.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
