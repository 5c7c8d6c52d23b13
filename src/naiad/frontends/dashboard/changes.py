"""What has changed since a look before, in the short form of the event stream."""

from __future__ import annotations

from typing import Any

from naiad.frontends.dashboard.model_figures import Row

Rows = dict[tuple[str, str], Row]
SECRET = "w"
"""The field that holds paths and texts of models: only callers who may read the index get it."""


class RowChanges:
    """Numbers the rows, and finds which of their fields changed."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._rows: Rows = {}
        self._next = 0

    def update(self, rows: Rows) -> dict[str, Any]:
        """Take new rows; returns the rows that changed by their numbers, and the numbers of those that are gone.

        A row that is new has its model ("n") and version ("v") as well.
        """
        changed: dict[str, Row] = {}
        for key, row in rows.items():
            before = self._rows.get(key)
            if before is None:
                self._next += 1
                self._numbers[key] = self._next
                changed[str(self._next)] = {"n": key[0], "v": key[1], **row}
            elif fields := _changed(before, row):
                changed[str(self._numbers[key])] = fields
        gone = [self._numbers.pop(key) for key in self._rows.keys() - rows.keys()]
        self._rows = rows
        return {"set": changed, "gone": gone}

    def all(self) -> dict[str, Any]:
        """The rows as they were at the last ``update``, as if all were new."""
        rows = {str(self._numbers[key]): {"n": key[0], "v": key[1], **row} for key, row in self._rows.items()}
        return {"set": rows, "gone": []}


def _changed(before: Row, row: Row) -> Row:
    if before == row:
        return {}
    fields = {name: value for name, value in row.items() if name not in before or before[name] != value}
    # A version that is unloaded loses its figures.
    return fields | dict.fromkeys(before.keys() - row.keys())


def without_secrets(changes: dict[str, Any]) -> dict[str, Any]:
    """The same changes for a caller who may not read the index."""
    rows = {
        number: {name: value for name, value in row.items() if name != SECRET} for number, row in changes["set"].items()
    }
    return changes | {"set": {number: row for number, row in rows.items() if row}}
