"""Started by the server, as ``python program.py DESCRIPTOR``, in its own interpreter or that of a model's environment.

Python puts the folder of this file first on its search path, where the names of its neighbours would hide other
packages. So that is undone before anything else is imported. Naiad itself is imported from around this file: the
environment may have none, or one of another version.
"""

from __future__ import annotations

import os
import sys


def _leave_search_path() -> str:
    """Take this file's folder off the search path."""
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(folder):
        del sys.path[0]
    return folder


def _make_package(folder: str) -> None:
    """Make the package importable that lies in ``folder``, and nothing beside it."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("naiad", folder + "/__init__.py", submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} cannot be imported as a package")
    module = sys.modules["naiad"] = module_from_spec(spec)
    spec.loader.exec_module(module)


def _borrow_packages() -> None:
    """Make the packages importable that the server lends to this environment."""
    from naiad.backends.out_of_process import server_packages

    # Taken: it is of no use to programs that the framework starts.
    lent = os.environ.pop(server_packages.VARIABLE, "")
    if lent:
        server_packages.borrow(lent)


def _know_paths_of_others() -> None:
    """Let paths be unpickled that come from a server with Python 3.13, which names their module differently."""
    import pathlib

    # Later versions know both names.
    if sys.version_info < (3, 13):
        sys.modules["pathlib._local"] = pathlib


def main() -> None:
    """Serve until the server says to end."""
    _make_package(os.path.dirname(os.path.dirname(_leave_search_path())))
    _borrow_packages()
    _know_paths_of_others()
    from naiad.backends.out_of_process.worker_main import serve

    code = serve(int(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    # Frameworks take their time to go, and some of them crash on the way. There is nothing left to lose.
    os._exit(code)


if __name__ == "__main__":
    main()
