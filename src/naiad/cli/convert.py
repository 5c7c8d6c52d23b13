"""``naiad convert``: shows the steps on standard error as they go, and the report on standard output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from naiad.cli.convert_options import parser
from naiad.errors import NaiadError

_FAILED = 1


def convert(argv: Sequence[str]) -> int:
    """Convert a model, or show a package; returns the exit code: 1 when no format is good enough."""
    try:
        if list(argv[:1]) == ["inspect"]:
            return _inspect(argv[1:])
        own = parser().parse_args(argv)
        return _convert(own)
    except (NaiadError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return _FAILED


def settings_of(own: argparse.Namespace, **more: Any) -> Any:
    """The settings that the options of ``add_options`` stand for.

    Raises:
        ConvertError: options do not fit one another, or name no format.
    """
    # Imported here and below: --help and wrong options do not pay for numpy.
    from naiad.convert.errors import ConvertError
    from naiad.convert.formats import FORMATS, chosen_formats
    from naiad.convert.run import default_name
    from naiad.convert.settings import ConvertSettings, Limits, Measuring, OutputMetric, Strategy, Verification

    try:
        formats = chosen_formats(own.formats)
    except KeyError as error:
        raise ConvertError(f"there is no format '{error.args[0]}'; there are: {', '.join(FORMATS)}") from None
    if own.strategy == "latency-budget" and not own.latency_budget:
        raise ConvertError("--strategy=latency-budget needs --latency-budget MS")
    if own.min is not None and not (own.metric or own.verify):
        raise ConvertError("--min needs --metric, or a --verify function that returns a number")
    if own.metric and own.verify:
        raise ConvertError("give --metric or --verify: one of them decides")
    return ConvertSettings(
        model=own.model,
        data=own.data,
        work=own.work or Path(f"naiad-convert-{default_name(own.model)}"),
        formats=formats,
        sample_count=own.samples,
        batch=own.batch,
        batching=False if own.no_batching else None,
        input_names=own.input_names,
        output_names=own.output_names,
        strategy=Strategy(own.strategy),
        latency_budget_ms=own.latency_budget or 0.0,
        verification=Verification(OutputMetric(own.metric) if own.metric else None, own.min, own.verify),
        measuring=Measuring(own.batch_sizes, own.max_batch, own.window),
        limits=Limits(own.time_limit, own.memory_limit),
        opset=own.opset,
        **more,
    )


def _inspect(argv: Sequence[str]) -> int:
    if len(argv) != 1:
        print("error: name one package, as in: naiad convert inspect net.nav", file=sys.stderr)
        return _FAILED
    from naiad.convert.package import inspect

    print(inspect(Path(argv[0])), end="")
    return 0


def _convert(own: argparse.Namespace) -> int:
    from naiad.convert.report_html import report_html
    from naiad.convert.report_text import report_text
    from naiad.convert.run import Converter

    _check_before(own)
    more = {"repository": own.repository, "name": own.name, "labels": own.labels, "is_dry": own.dry_run}
    converter = Converter(settings_of(own, **more), say)
    conversion = converter.run()
    print(report_text(conversion), end="")
    if own.dry_run and conversion.chosen:
        print(f"\nwould be published as {(own.repository or Path()) / conversion.name}/config.pbtxt:\n")
        print(converter.config(), end="")
    _write(own.html, lambda: report_html(conversion))
    _write(own.json, lambda: json.dumps(conversion.as_json(), indent=1) + "\n")
    if own.package is not None:
        from naiad.convert.package import save

        save(conversion, own.package)
    return 0 if conversion.chosen and not conversion.publish_failure else _FAILED


def say(line: str) -> None:
    """One line about a step."""
    print(line, file=sys.stderr, flush=True)


def _check_before(own: argparse.Namespace) -> None:
    """What would fail at the end is said at the start."""
    from naiad.convert.errors import ConvertError
    from naiad.convert.run import default_name

    name = own.name or default_name(own.model)
    if own.repository is not None and not own.dry_run and (own.repository / name).exists():
        raise ConvertError(f"there is a model {own.repository / name} already; remove it, or give another --name")
    if own.labels is not None and not own.labels.is_file():
        raise ConvertError(f"there is no file {own.labels}")
    if own.package is not None and own.package.exists():
        raise ConvertError(f"there is a file {own.package} already; remove it, or give another --package")
    if not own.repository and own.dry_run:
        own.repository = Path("models")


def _write(file: Path | None, text: Callable[[], str]) -> None:
    if file is not None:
        file.write_text(text(), encoding="utf-8")
