"""The files of forests: which formats there are, and which one a file has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from naiad.backend_api.backend import BackendContext


@dataclass(frozen=True, slots=True)
class ForestFormat:
    """One value of ``model_type``, the file name that goes with it, and a name for error texts."""

    model_type: str
    filename: str
    title: str


XGBOOST_UBJ: Final = ForestFormat("xgboost_ubj", "xgboost.ubj", "XGBoost UBJSON")
XGBOOST_JSON: Final = ForestFormat("xgboost_json", "xgboost.json", "XGBoost JSON")
XGBOOST: Final = ForestFormat("xgboost", "xgboost.model", "XGBoost's legacy binary format")
LIGHTGBM: Final = ForestFormat("lightgbm", "model.txt", "LightGBM text")
TREELITE: Final = ForestFormat("treelite_checkpoint", "checkpoint.tl", "a treelite checkpoint")
SKOPS: Final = ForestFormat("skops", "model.skops", "scikit-learn in skops")
JOBLIB: Final = ForestFormat("joblib", "model.joblib", "scikit-learn in a pickle")

FORMATS: Final = (XGBOOST_UBJ, XGBOOST_JSON, XGBOOST, LIGHTGBM, TREELITE, SKOPS, JOBLIB)
BY_TYPE: Final = {file_format.model_type: file_format for file_format in FORMATS}
_USUAL_NAMES: Final = frozenset(file_format.filename for file_format in FORMATS)
_HEAD_BYTES: Final = 64
# Treelite 3.9 and 4 read each other's checkpoints, which begin with the version as 32-bit numbers.
_CHECKPOINTS: Final = tuple(major.to_bytes(4, "little") for major in (3, 4, 5))


def model_file(context: BackendContext, stated: ForestFormat | None) -> Path:
    """The file of a model. One that has the usual name of another format gives way to that of ``model_type``.

    Where neither is there, a file ``model`` with the ending of the format is taken, such as the ``model.json`` of the
    reference's pages.

    Raises:
        ModelLoadError: there is no such file, or it is empty.
    """
    path = context.model_path
    if path.is_dir():
        path = path / (stated or XGBOOST_JSON).filename
    elif stated is not None and path.name in _USUAL_NAMES:
        own = path.with_name(stated.filename)
        path = own if own.is_file() or not path.is_file() else path
    if path.name in _USUAL_NAMES and not path.is_file():
        plain = path.with_stem("model")
        path = plain if plain.is_file() else path
    if not path.is_file():
        raise ModelLoadError(
            f"model '{context.model}': there is no file {path}; put the model there, or name it with "
            f"default_model_filename in the configuration"
        )
    if path.stat().st_size == 0:
        raise ModelLoadError(f"model '{context.model}': the model file {path} is empty; save or copy it again")
    return path


def format_of(model: str, file: Path, stated: ForestFormat | None) -> ForestFormat:
    """The format of a file: what ``model_type`` says, or else what its first bytes and its name say.

    Raises:
        ModelLoadError: ``model_type`` and the first bytes contradict each other, or nothing says what it is.
    """
    found = _from_content(file)
    if stated is None:
        found = found or next((f for f in FORMATS if f.filename == file.name), None)
        if found is None:
            names = ", ".join(BY_TYPE)
            raise ModelLoadError(
                f"model '{model}': {file} is in no format that is known; write it in the configuration: "
                f'parameters {{ key: "model_type" value {{ string_value: "..." }} }} with one of {names}'
            )
        return found
    if found not in (None, stated):
        raise ModelLoadError(
            f"model '{model}': parameter 'model_type' is \"{stated.model_type}\" ({stated.title}), and {file} is "
            f'{found.title}; write model_type: "{found.model_type}", or put a file of that format there'
        )
    return stated


def _from_content(file: Path) -> ForestFormat | None:
    with file.open("rb") as opened:
        head = opened.read(_HEAD_BYTES)
    if head.startswith(b"{"):
        # In UBJSON the length of the first key follows, with a letter for its type.
        return XGBOOST_JSON if head[1:].lstrip()[:1] in (b'"', b"}") else XGBOOST_UBJ
    if head.startswith((b"tree\n", b"tree\r\n")):
        return LIGHTGBM
    if head.startswith(b"PK\x03\x04"):
        return SKOPS
    if head.startswith(b"\x80") and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return JOBLIB
    # A legacy file may begin with a score that looks like a version, so the file's name counts as well.
    return TREELITE if head.startswith(_CHECKPOINTS) and file.suffix == ".tl" else None
