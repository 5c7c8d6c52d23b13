"""The program that compiles an archive of ``torch.export`` with AOTInductor, in a process of its own.

Compilation takes tens of seconds and hundreds of megabytes, and keeps Python busy: in the server it would delay every
request. Arguments: the archive, the package to write, and the device.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from naiad.backends.torch.archive import ends_on_bad_index
from naiad.backends.torch.exported import is_elsewhere, moved

_LOAD: Final = (
    "import sys, torch; torch._C._aoti.AOTIModelPackageLoader(sys.argv[1], 'model', False, 1, int(sys.argv[2]))"
)


def compile_archive(archive: str, package: str, device: str) -> None:
    """Compile an archive into a package for ``device``, which survives wrong indices on the processor."""
    # The threads of the instance that runs it, not those of this process.
    _compile(archive, package, device, {"cpp.dynamic_threads": True})
    if ends_on_bad_index(Path(package)):
        # Slower where its loops are long, and a request with a wrong index gets an error.
        _compile(archive, package, device, {"cpp.threads": 1})
    if device != "cpu":
        _check_loads(package, device)


def _check_loads(package: str, device: str) -> None:
    """Load a package for a GPU in a process of its own; the loader is code of torch, which can end its process.

    Seen with a compiler that links the library of C++ into what it makes.
    """
    loaded = subprocess.run(
        [sys.executable, "-c", _LOAD, package, device.partition(":")[2] or "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    if loaded.returncode:
        ended = loaded.stderr.strip().splitlines()[-1:] if loaded.returncode > 0 else []
        sys.exit(f"the compiled code cannot be loaded, exit code {loaded.returncode} {' '.join(ended)}".rstrip())


def _compile(archive: str, package: str, device: str, configs: dict[str, Any]) -> None:
    import torch

    # Without a pool of processes, which would gain little for one model.
    configs = {**configs, "compile_threads": 1}
    if hasattr(torch._inductor.config.aot_inductor, "precompile_headers"):
        # Nor with precompiled headers, which pay from the fifth model on: the first one takes 21 s of processor time
        # without them and 37 s with them, and they leave 280 MB in the temporary folder.
        configs["aot_inductor.precompile_headers"] = False
    program = torch.export.load(archive)
    if is_elsewhere(program, device):
        program = moved(archive, program, device)
    torch._inductor.aoti_compile_and_package(program, package_path=package, inductor_configs=configs)


if __name__ == "__main__":
    compile_archive(*sys.argv[1:])
