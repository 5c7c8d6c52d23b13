"""What a framework's exception says: the operator that it names, and what its user can change."""

from __future__ import annotations

import errno
import re
import traceback
from dataclasses import asdict
from typing import Any, Final

from naiad.convert.errors import StepError, StepFailure
from naiad.errors import first_line
from naiad.extras import how_to_install

_OPERATORS: Final = (
    r"No ONNX function found for <OpOverload\(op='([\w.:]+)'",
    r"(?:[Uu]nsupported|[Mm]issing|[Uu]nknown)[^.\n]*?(?:operator|op|function|node)s?[^'\"\w]*['\"]?"
    r"((?:aten|prims|torchvision|torch|prim|quantized|onnx|ai)[.:]+[\w.:]+)",
    r"exporting the operator '([^']+)'",
    r"No (?:Op|decompositions|ONNX function|conversion rule) (?:registered |found )?for (?:the )?(?:operator )?['\"]?"
    r"([\w.:]+)",
    r"conversion function for ((?:aten|prims)[\w.:]+)",
    r"OpenVINO does not support the following ONNX operations: ([\w.:]+)",
    r"No conversion rule found for operations: ([\w.:, ]+)",
    r"Unable to find (?:a )?(?:shape calculator|converter) for (?:type |alias )?['\"]?(?:<class ')?([\w.]+)",
    r"Tensorflow op \[[^:]+: ([\w]+)\] is not supported",
    r"Could not find an implementation for ([\w.]+)",
    r"Fatal error: ([\w.:]+) is not a registered function/op",
    r"The following operators? (?:are|is) not (?:supported|implemented):? ([\w.:]+)",
    r"\b((?:aten|torchvision|prims)::?\.?[a-z_]\w*(?:\.\w+)?)",
    r"\b(torch\.ops\.[\w.]+)",
)
_ADVICE: Final = (
    (
        r"data-dependent|DataDependent|Could not guard|Could not extract specialized",
        "the code branches on values of a tensor: use torch.where or torch.cond, or torch._check for sizes",
    ),
    (
        r"specializ|Constraints violated|marked .* as dynamic",
        "the code fixes a dimension that varies: take sizes from x.shape, or give samples of one shape",
    ),
    (
        r"operator was added in version",
        "give that version as --opset",
    ),
    (
        r"xporting the operator|No ONNX function|aten_\w+|conversion function|decomposition|not a registered function",
        "replace the operator in the model's code, or leave this format out",
    ),
    (
        r"[Oo]pset",
        "try another opset (--opset 18 or newer)",
    ),
    (
        r"is not scriptable|Failed to get source|TorchScript|torch\.jit|Unsupported node kind|Unknown type name|"
        r"cannot be used as a value",
        "the code is no TorchScript; torch-export takes more of Python",
    ),
    (
        r"C\+\+ compiler|InvalidCxxCompiler|g\+\+|clang",
        "install a C++ compiler (apt-get install g++)",
    ),
)
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_LARGE: Final = r"2 ?G(?:i?B)|larger than 2GB|exceeds maximum protobuf size|2147483648|serialized.*too large"
_LONGEST: Final = 400


def describe_failure(error: BaseException) -> dict[str, Any]:
    """``error`` as the fields of a ``StepFailure``."""
    return asdict(_failure(error))


def _failure(error: BaseException) -> StepFailure:
    if isinstance(error, StepError):
        return StepFailure(str(error), _operator(str(error)), error.advice)
    missing = _missing(error)
    if missing:
        advice = f"run: {_install(missing)}"
        return StepFailure(f"the package '{missing}' is not installed", "", advice, is_missing_package=True)
    text = _whole(error)
    if (isinstance(error, OSError) and error.errno in _NO_ROOM) or "No space left on device" in text:
        return StepFailure(f"no room is left on the disk: {first_line(error)}", "", "make room, or use another --work")
    if isinstance(error, MemoryError) or "bad allocation" in text or "bad_alloc" in text:
        advice = "use a smaller --max-batch, or another machine"
        return StepFailure(f"no memory is left: {first_line(error)}", "", advice)
    reason = f"{type(error).__name__}: {_shown(error)}"
    if re.search(_LARGE, text):
        return StepFailure(reason, "", "a file of protobuf ends at 2 GiB; the weights have to be external data")
    return StepFailure(reason, _operator(text), _script_place(text) or _advice(text) or _place(error))


def _missing(error: BaseException) -> str:
    """The package that an import did not find, also as the cause of another exception."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ModuleNotFoundError) and seen.name:
            return seen.name.partition(".")[0]
        seen = seen.__cause__ or seen.__context__
    found = re.search(r"No module named '([\w.]+)'", str(error))
    return found[1].partition(".")[0] if found else ""


def _install(package: str) -> str:
    """The command for the extra that has a package."""
    if package in ("tf2onnx",):
        return how_to_install("convert-tensorflow")
    if package in ("skl2onnx", "onnxmltools"):
        return how_to_install("convert-trees")
    if package == "nncf":
        return how_to_install("convert-openvino")
    if package == "openvino":
        return how_to_install("openvino")
    if package in ("torch", "torchvision"):
        return how_to_install("torch")
    if package in ("tensorflow", "keras"):
        return how_to_install("tensorflow")
    if package == "treelite":
        return how_to_install("fil")
    return how_to_install("convert") if package.startswith("onnx") else f"pip install {package}"


def _whole(error: BaseException) -> str:
    """The texts of an exception and of its causes."""
    texts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(texts) < 8:
        texts.append(str(seen))
        seen = seen.__cause__ or seen.__context__
    return "\n".join(texts)


def _shown(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # The exporters of torch wrap the cause in pages of general advice, as lists.
    telling = [line for line in lines if re.search(r"rror|nsupported|not support|No Op|cannot|Could not", line)]
    telling = [line for line in telling if not line.startswith("- ")]
    text = re.sub(r"^<class '[\w.]+'>: ", "", (telling or lines or [type(error).__name__])[0]).rstrip(" .:")
    cause = error.__cause__
    if cause is not None and str(cause) and first_line(cause) not in text:
        text = f"{text} ({type(cause).__name__}: {first_line(cause)})"
    return text[:_LONGEST]


def _operator(text: str) -> str:
    for pattern in _OPERATORS:
        found = re.search(pattern, text)
        if found:
            return found[1].strip(" .,:'")
    return ""


def _advice(text: str) -> str:
    for pattern, advice in _ADVICE:
        if re.search(pattern, text):
            return advice
    return ""


def _script_place(text: str) -> str:
    """What the compiler of TorchScript marks in the user's own code."""
    found = re.search(r'File "([^"]+)", line (\d+)\n(?:.*\n)*?\s*(.+)\n\s*~+ <--- HERE', text)
    if not found:
        return ""
    place = f"{found[1]}, in what begins at line {found[2]}: {found[3]}"
    return f"this code is no TorchScript; torch-export takes more of Python: {place}"


def _place(error: BaseException) -> str:
    """Where in the user's own code it happened, outside of installed packages."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "site-packages" not in f.filename and "/naiad/" not in f.filename]
    own = [f for f in own if not f.filename.startswith("<") and not f.filename.endswith("reproduce.py")]
    own = [f for f in own if "/lib/python" not in f.filename]
    return f"look at {own[-1].filename}, line {own[-1].lineno}: {own[-1].line}" if own else ""
