"""``naiad serve MODEL --optimize --data SAMPLES``: converts the model first, and serves the best format."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from naiad.cli.convert import say, settings_of
from naiad.cli.convert_options import add_options
from naiad.errors import NaiadError


def optimize_and_serve(argv: Sequence[str], serve: Callable[[Sequence[str]], int]) -> int:
    """Convert, publish into a temporary repository, and hand the other options over; returns the exit code.

    The options of ``naiad convert`` are those of ``add_options``; all others are the server's.
    """
    made = argparse.ArgumentParser("naiad serve MODEL --optimize", add_help=False, allow_abbrev=False)
    made.add_argument("--optimize", action="store_true", help=argparse.SUPPRESS)
    made.add_argument("--data", required=True)
    add_options(made)
    own, others = made.parse_known_args(list(argv))
    # A word without dashes may be the value of an option of the server.
    models = [word for word in others if not word.startswith("-") and (".py:" in word or Path(word).exists())]
    if len(models) != 1 or "--model-repository" in " ".join(others):
        print("error: --optimize is for one model: naiad serve MODEL --optimize --data SAMPLES", file=sys.stderr)
        return 1
    own.model = models[0]
    others.remove(own.model)
    with tempfile.TemporaryDirectory(prefix="naiad-optimized-") as folder:
        try:
            _optimize(own, Path(folder) / "models")
        except (NaiadError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        return serve([f"--model-repository={folder}/models", *others])


def _optimize(own: argparse.Namespace, repository: Path) -> None:
    from naiad.convert.errors import ConvertError, SourceError
    from naiad.convert.report_text import report_text
    from naiad.convert.run import Converter

    is_kept = own.work is not None
    with tempfile.TemporaryDirectory(prefix="naiad-convert-") as work:
        own.work = own.work or Path(work)
        try:
            conversion = Converter(settings_of(own, repository=repository), say).run()
        except SourceError as error:
            # The script goes with the folder.
            raise error if is_kept else ConvertError(error.failure) from error
    print(report_text(conversion, has_files=is_kept), file=sys.stderr, end="")
    if not is_kept and not all(result.is_good for result in conversion.formats):
        print("--work DIR keeps the scripts, logs and worst samples of formats that failed", file=sys.stderr)
    if not conversion.chosen:
        raise ConvertError(f"nothing to serve: {conversion.reason}")
    if conversion.publish_failure:
        raise ConvertError(f"nothing to serve: {conversion.publish_failure}")
