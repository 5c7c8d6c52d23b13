"""The program that compiles an archive of ``torch.export`` with AOTInductor, in a process of its own.

Compilation takes tens of seconds and hundreds of megabytes, and keeps Python busy: in the server it would delay every
request. Arguments: the archive, and the package to write.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from naiad.backends.torch.archive import ends_on_bad_index


def compile_archive(archive: str, package: str) -> None:
    """Compile an archive into a package that survives wrong indices."""
    # The threads of the instance that runs it, not those of this process.
    _compile(archive, package, {"cpp.dynamic_threads": True})
    if ends_on_bad_index(Path(package)):
        # Slower where its loops are long, and a request with a wrong index gets an error.
        _compile(archive, package, {"cpp.threads": 1})


def _compile(archive: str, package: str, configs: dict[str, Any]) -> None:
    import torch

    # Without a pool of processes, which would gain little for one model.
    configs = {**configs, "compile_threads": 1}
    if hasattr(torch._inductor.config.aot_inductor, "precompile_headers"):
        # Nor with precompiled headers, which pay from the fifth model on: the first one takes 21 s of processor time
        # without them and 37 s with them, and they leave 280 MB in the temporary folder.
        configs["aot_inductor.precompile_headers"] = False
    torch._inductor.aoti_compile_and_package(torch.export.load(archive), package_path=package, inductor_configs=configs)


if __name__ == "__main__":
    compile_archive(sys.argv[1], sys.argv[2])
