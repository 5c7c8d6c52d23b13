"""Label files: the names of the classes of an output, one on each line.

Source: ``label_filename`` of the model configuration. The file lies in the model's folder.
"""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from naiad.config.problems import Origin
    from naiad.config.spec import ModelSpec

MAX_LABEL_BYTES: Final = 64 << 20
"""How large a label file may be: it is read as a whole."""


def with_labels(spec: ModelSpec, folder: Path, origin: Origin) -> ModelSpec:
    """``spec`` with the labels of its outputs, read from the files below ``folder`` that the configuration names.

    Raises:
        ConfigError: a file cannot be read, or lies elsewhere.
    """
    if not any(t.label_filename for t in spec.outputs.values()):
        return spec
    outputs = {
        name: replace(t, labels=_read(folder, t.label_filename, origin, f"output[{index}].label_filename"))
        for index, (name, t) in enumerate(spec.outputs.items())
    }
    return replace(spec, outputs=outputs)


def _read(folder: Path, name: str, origin: Origin, place: str) -> tuple[bytes, ...]:
    if not name:
        return ()
    file = folder / name
    # The configuration may come with a request to load the model: it must not show other files of this machine.
    if not file.resolve().is_relative_to(folder.resolve()):
        raise origin.error(f"label file '{name}' lies outside the model's folder: put it inside", place)
    try:
        found = file.stat()
        if stat.S_ISREG(found.st_mode) and found.st_size > MAX_LABEL_BYTES:
            text = f"label file '{name}' is {found.st_size} bytes large, expected at most {MAX_LABEL_BYTES}"
            raise origin.error(text, place)
        # The opening of a pipe would wait for a writer; a folder shows by the error of reading it.
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            raise origin.error(f"label file '{name}' is a pipe or a device, expected a plain file", place)
        return tuple(file.read_bytes().splitlines())
    except OSError as error:
        raise origin.error(f"unable to read label file '{name}' in {folder}: {error.strerror}", place) from None
