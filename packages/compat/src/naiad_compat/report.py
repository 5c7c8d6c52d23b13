"""``naiad-compat``: which program a shell runs for each of the names."""

from __future__ import annotations

import sys

from naiad_compat.commands import REPLACED
from naiad_compat.programs import found, is_own


def main() -> int:
    """Print a line for each name; returns 1 if an original comes first, or if nothing has the name."""
    is_ours = True
    for name, command in REPLACED.items():
        programs = found(name)
        if not programs:
            line = "not on the path: add the folder with naiad-compat to PATH"
        elif is_own(programs[0]):
            line = f"naiad {command} ({programs[0]})"
        else:
            line = f"the original, {programs[0]}: it comes before Naiad's on the path"
        is_ours = is_ours and bool(programs) and is_own(programs[0])
        behind = [str(program) for program in programs[1:] if not is_own(program)] if programs else []
        hidden = f"; hides {', '.join(behind)}" if behind and is_own(programs[0]) else ""
        sys.stdout.write(f"{name:<16}{line}{hidden}\n")
    return 0 if is_ours else 1
