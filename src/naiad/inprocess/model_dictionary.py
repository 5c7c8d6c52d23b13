"""``ModelDictionary``: the models that ``Server.models`` has found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from naiad.inprocess.engine_thread import EngineThread
from naiad.inprocess.model import Model


class ModelDictionary(dict[tuple[str, int], Model]):
    """Models by name and version. A name alone is a key as well: the model without a version, and without a state."""

    def __init__(self, engine: EngineThread, rows: Sequence[Mapping[str, str]]) -> None:
        super().__init__()
        self._engine = engine
        for row in rows:
            version = int(row.get("version", -1))
            self[row["name"], version] = Model(engine, row["name"], version, row.get("state"), row.get("reason"))

    def __getitem__(self, key: tuple[str, int] | str) -> Model:
        if isinstance(key, tuple):
            return super().__getitem__(key)
        if all(name != key for name, _ in self):
            raise KeyError(key)
        return Model(self._engine, key)
