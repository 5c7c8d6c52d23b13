"""The tables of the start-up log."""

from __future__ import annotations

from naiad.telemetry.logs.tables import format_table


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert format_table(("Model", "Version", "Status"), [("mlp", 1, "READY"), ("resnet50", 12, "")]) == (
        "+----------+---------+--------+\n"
        "| Model    | Version | Status |\n"
        "+----------+---------+--------+\n"
        "| mlp      | 1       | READY  |\n"
        "| resnet50 | 12      |        |\n"
        "+----------+---------+--------+\n"
    )


def test_a_cell_of_several_lines_makes_its_row_higher() -> None:
    assert format_table(("Model", "Status"), [("a", "UNAVAILABLE:\nno file")]).splitlines()[3:5] == [
        "| a     | UNAVAILABLE: |",
        "|       | no file      |",
    ]


def test_without_rows_only_the_headings_stand() -> None:
    assert format_table(("Model",), []) == "+-------+\n| Model |\n+-------+\n"
