"""The options of ``naiad convert``."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Final

_USAGE: Final = """\
naiad convert MODEL --data SAMPLES [OPTION ...]
       naiad convert inspect FILE

Exports and converts MODEL to other formats, compares their outputs with its own over all samples, measures those that
agree, and names the best one. MODEL is file.py:name (a torch.nn.Module, a Keras model, an estimator or a function, or a
function that returns one), a .pt2, .pt, .keras or .onnx file, the folder of a SavedModel, a file of XGBoost (.json,
.ubj) or LightGBM (.txt), or an estimator (.skops, .joblib). SAMPLES is a .npz file with a row for each sample, a folder
of such files, or file.py:function for anything that can be iterated."""
_SIZES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parser() -> argparse.ArgumentParser:
    """The parser of the command's options."""
    made = argparse.ArgumentParser("naiad convert", usage=_USAGE, allow_abbrev=False)
    made.add_argument("model", metavar="MODEL", help="the model; a pickle in it runs when it is loaded")
    made.add_argument("--data", metavar="SAMPLES", required=True, help="the samples")
    add_options(made)
    made.add_argument("--repository", type=Path, metavar="DIR", help="publish the best format there")
    made.add_argument("--name", default="", help="of the published model (default: the file's or the function's)")
    made.add_argument("--labels", type=Path, metavar="FILE", help="a label per line, for the first output")
    made.add_argument("--dry-run", action="store_true", help="show what would be published, and publish nothing")
    made.add_argument("--package", type=Path, metavar="FILE", help="keep all formats, samples and figures in a file")
    made.add_argument("--html", type=Path, metavar="FILE", help="write the report as an HTML file")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    return made


def add_options(made: argparse.ArgumentParser) -> None:
    """Those about the conversion itself, which ``naiad serve --optimize`` has too."""
    made.add_argument("--formats", type=_words, default=(), metavar="A,B", help="formats or groups of them (all)")
    made.add_argument(
        "--strategy",
        default="max-throughput",
        choices=("max-throughput", "min-latency", "latency-budget", "smallest"),
        help="which format is the best (max-throughput)",
    )
    made.add_argument("--latency-budget", type=_positive, metavar="MS", help="p99 for --strategy=latency-budget")
    made.add_argument("--metric", choices=("top1", "cosine"), help="compare outputs by this instead of tolerances")
    made.add_argument("--min", type=float, metavar="N", help="the least value of --metric, or of the --verify function")
    made.add_argument("--verify", default="", metavar="FILE.py:FN", help="a function that judges the outputs")
    made.add_argument("--work", type=Path, metavar="DIR", help="where steps write (default: naiad-convert-NAME)")
    made.add_argument("--samples", type=_count, default=100, metavar="N", help="samples taken at most (100)")
    made.add_argument("--batch", type=_count, default=4, metavar="N", help="rows of a sample, of a .npz file (4)")
    made.add_argument("--no-batching", action="store_true", help="the first axis is not that of a batch")
    made.add_argument("--max-batch", type=_count, default=32, metavar="N", help="the largest batch to try (32)")
    made.add_argument("--batch-sizes", type=_counts, default=(), metavar="1,8", help="batch sizes to measure")
    made.add_argument("--window", type=_count, default=400, metavar="MS", help="length of a measurement window (400)")
    made.add_argument("--time-limit", type=_positive, default=600.0, metavar="S", help="of each step (600)")
    made.add_argument("--memory-limit", type=_bytes, default=0, metavar="8G", help="of each step (none)")
    made.add_argument("--opset", type=_count, default=0, metavar="N", help="of ONNX (the exporter's own)")
    made.add_argument("--input-names", type=_words, default=(), metavar="A,B", help="names of the inputs")
    made.add_argument("--output-names", type=_words, default=(), metavar="A,B", help="names of the outputs")


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _counts(text: str) -> tuple[int, ...]:
    return tuple(_count(word) for word in _words(text))


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG]?)i?B?", text.strip(), re.IGNORECASE)
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 8G")
    return int(found[1]) * _SIZES[found[2].upper()]
