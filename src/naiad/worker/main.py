"""Started by the server, as ``python main.py DESCRIPTOR``, in the interpreter of the model's environment.

Python puts the folder of this file first on its search path, where the names of its neighbours would hide other
packages. So that is undone before anything else is imported, and the folder becomes a package.

``multiprocessing`` also runs this file in the processes that a model spawns, as ``__mp_main__``. They get the models'
interface when they import it: what they run is often a function of the model's file.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # As the type checker reads it, without an import.
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

PACKAGE = "naiad_worker"
NAMES = ("triton_python_backend_utils", "c_python_backend_utils")
"""The models' interface in the reference."""


def _leave_search_path() -> str:
    """Take this file's folder off the search path."""
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(folder):
        del sys.path[0]
    return folder


def _make_package(folder: str) -> None:
    """Make the folder importable as a package."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(PACKAGE, folder + "/__init__.py", submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} cannot be imported as a package")
    module = module_from_spec(spec)
    # Not ``naiad.worker``: the model's environment may have a Naiad of another version.
    sys.modules[PACKAGE] = module
    spec.loader.exec_module(module)


def _provide_interfaces() -> None:
    """Make the models' interface importable under each of its names."""
    from importlib import import_module
    from importlib.util import find_spec
    from types import ModuleType

    interface = import_module(PACKAGE + ".api.pb_utils")
    for name in (*NAMES, "naiad.python_backend"):
        sys.modules[name] = interface
    # An environment without Naiad: an empty package leads to the interface.
    if find_spec("naiad") is None:
        package = sys.modules["naiad"] = ModuleType("naiad")
        package.__path__ = []
    else:
        package = import_module("naiad")
    vars(package)["python_backend"] = interface


class _Interfaces:
    """Provides the models' interface in a spawned process, once one of its names is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        from importlib.util import spec_from_loader

        # Asked last: "naiad" is here only where it is not installed.
        return spec_from_loader(name, self) if name in (*NAMES, "naiad") else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        _make_package(os.path.dirname(os.path.abspath(__file__)))
        sys.meta_path.remove(self)
        _provide_interfaces()
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do."""


def _ignore_signals() -> None:
    """Leave it to the server when to end: a Ctrl-C reaches every process of the terminal at once."""
    import signal

    # A function and not SIG_IGN, which programs that the model starts would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)


def main() -> int:
    """Serve until the server says to end; the exit code."""
    # First: a Ctrl-C while the worker starts must not end it, either.
    _ignore_signals()
    _make_package(_leave_search_path())
    _provide_interfaces()
    from importlib import import_module

    descriptor = int(sys.argv[1])
    # As in a program that embeds Python: what parses arguments, such as unittest.main, finds none of ours.
    sys.argv = [""]
    code: int = import_module(PACKAGE + ".runtime.session").start(descriptor)
    return code


if __name__ == "__main__":
    sys.exit(main())
if __name__ == "__mp_main__":
    sys.meta_path.append(_Interfaces())
