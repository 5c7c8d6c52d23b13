"""The program that compiles an archive of ``torch.export`` with AOTInductor, in a process of its own.

Compilation takes tens of seconds and hundreds of megabytes, and keeps Python busy: in the server it would delay every
request. Arguments: the archive, and the package to write.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Compile ``argv[1]`` into ``argv[2]``."""
    import torch

    program = torch.export.load(sys.argv[1])
    torch._inductor.aoti_compile_and_package(
        program,
        package_path=sys.argv[2],
        # The threads of the instance that runs it, not those of this process. Without a pool of processes, which
        # would gain little for one model.
        inductor_configs={"cpp.dynamic_threads": True, "compile_threads": 1},
    )


if __name__ == "__main__":
    main()
