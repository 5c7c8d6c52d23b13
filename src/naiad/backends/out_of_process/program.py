"""Started by the server, as ``python program.py DESCRIPTOR``, in the server's own interpreter.

Python puts the folder of this file first on its search path, where the names of its neighbours would hide other
packages. So that is undone before anything else is imported.
"""

from __future__ import annotations

import os
import sys


def _mend_search_path() -> None:
    """Take this file's folder off the search path, and add the package's where the environment does not have it."""
    from importlib.util import find_spec

    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(folder):
        del sys.path[0]
    if find_spec("naiad") is None:
        sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(folder))))


def main() -> None:
    """Serve until the server says to end."""
    _mend_search_path()
    from naiad.backends.out_of_process.worker_main import serve

    code = serve(int(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    # Frameworks take their time to go, and some of them crash on the way. There is nothing left to lose.
    os._exit(code)


if __name__ == "__main__":
    main()
