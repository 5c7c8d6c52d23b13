"""The changes in the repositories since the last look, found by the content of the files.

A look compares each file's size, times and place with those of the look before, and reads the content only where these
differ. A model is loaded when two looks in a row find it the same, so that a model that is being copied is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from naiad.config.source import ModelSource
from naiad.errors import NaiadError
from naiad.repository.catalog import in_two
from naiad.repository.changes.contents import Content, FileHashes, ListedLook, Look, look_at, unchanged_versions
from naiad.repository.local.layout import duplicate

if TYPE_CHECKING:
    from naiad.options.remote_uri import RemoteUri
    from naiad.repository.catalog import Catalog
    from naiad.repository.remote.repository import RemoteModel

LOOKS_WITHOUT: Final = 2
"""The looks in a row that must miss a model before it counts as removed."""
RESTS: Final = 20
"""The looks that skip a model with too many files: each attempt to list it takes seconds."""


class Outcome(Enum):
    """The outcome of a change.

    SERVES: versions serve that come from it. FAILED: none does. NOT_NOW: it was not tried, and is to be found again.
    """

    SERVES = "serves"
    FAILED = "failed"
    NOT_NOW = "not now"


@dataclass(frozen=True, slots=True)
class Change:
    """A model that is new or has changed since its last load. ``unchanged`` has its versions that have not changed."""

    name: str
    source: ModelSource | RemoteModel
    unchanged: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of a look.

    Attributes:
        names: all models, unloadable ones included.
        changes: models to be loaded.
        removed: names of models to be unloaded.
        refused: why a model's files cannot be loaded, by name.
        unreadable: why a repository cannot be read; the state of its models is unknown.
        is_moving: some files are changing, so the next look should come soon.
    """

    names: frozenset[str]
    changes: tuple[Change, ...]
    removed: tuple[str, ...]
    refused: Mapping[str, str]
    unreadable: Mapping[Path | RemoteUri, str]
    is_moving: bool


@dataclass(slots=True)
class _Watched:
    """A model under watch.

    Attributes:
        last: the snapshot of the last look.
        tried: the snapshot with which the last load began; ``content`` is its content, where that is known.
        serving: the content that the serving versions come from, where it is known.
        serves_tried: the serving versions come from ``tried``.
        was_refused: its files could not be loaded, at the last look or an earlier one.
        rests: the number of looks that still skip the model, because of its ``problem``.
        misses: the looks in a row that did not find it.
    """

    last: Look | ListedLook | None = None
    tried: Look | ListedLook | None = None
    content: Content | None = None
    serving: Content | None = None
    serves_tried: bool = False
    was_refused: bool = False
    rests: int = 0
    problem: str = ""
    misses: int = 0

    def learn(self, content: Content | None) -> None:
        """The content of ``tried``."""
        self.content = content
        if self.serves_tried:
            self.serving = content


@dataclass(slots=True)
class _Seen:
    """The models of all repositories that could be read."""

    sources: dict[str, ModelSource | RemoteModel] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unreadable: dict[Path | RemoteUri, str] = field(default_factory=dict)


class Watch:
    """Looks at the repositories of ``catalog``, one look after the other.

    Its methods read files and ask stores: for one thread at a time.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._contents = FileHashes()
        self._watched: dict[str, _Watched] = {}

    def begin(self, models: Mapping[str, ModelSource | RemoteModel], unavailable: Iterable[str]) -> None:
        """Remember the snapshots of the models of the start, before they are loaded, and the unloadable models."""
        for name, source in models.items():
            try:
                look = look_at(source)
            except NaiadError:
                # Its load reports the problem.
                self._watched[name] = _Watched(was_refused=True)
                continue
            is_known = isinstance(source, ModelSource) or source.files is not None
            self._watched[name] = _Watched(last=look, tried=look if is_known else None, serves_tried=is_known)
        self._watched.update({name: _Watched(was_refused=True) for name in unavailable})

    def note(self, name: str, outcome: Outcome) -> None:
        """Remember the outcome of a change."""
        watched = self._watched.get(name)
        if watched is None:
            return
        if outcome is Outcome.NOT_NOW:
            # Without these the next look finds the change again.
            watched.tried = watched.content = None
        elif outcome is Outcome.SERVES:
            watched.serving, watched.serves_tried = watched.content, True

    def look(self, busy: Collection[str], is_settled: Callable[[str], bool]) -> Findings:
        """Look at all repositories.

        Args:
            busy: models of which a change is still being loaded.
            is_settled: whether a model serves as it was tried last.
        """
        seen = self._see()
        is_moving = False
        changes: list[Change] = []
        for name, source in seen.sources.items():
            watched = self._watched.setdefault(name, _Watched())
            watched.misses = 0
            before = watched.last
            if watched.rests:
                watched.rests -= 1
                seen.refused[name] = watched.problem
                continue
            try:
                watched.last = look_at(source)
            except NaiadError as error:
                watched.last, watched.was_refused = None, True
                watched.rests, watched.problem = RESTS, str(error)
                seen.refused[name] = watched.problem
                continue
            if before is None or not watched.last.is_still_as(before):
                is_moving = True
            elif name not in busy:
                change = self._change(name, watched, watched.last, is_settled(name))
                changes += [change] if change is not None else []
        removed, missing = self._missing(seen, busy)
        self._contents.keep({path for w in self._watched.values() if w.last is not None for path in w.last.files})
        names = frozenset(seen.sources) | frozenset(seen.refused) | (frozenset(self._watched) - frozenset(removed))
        return Findings(names, tuple(changes), removed, seen.refused, seen.unreadable, is_moving or missing)

    def _see(self) -> _Seen:
        seen = _Seen()
        found: dict[str, list[ModelSource | RemoteModel]] = {}
        for place, listing, problem in self._catalog.places():
            if listing is None:
                seen.unreadable[place] = problem
                continue
            seen.refused.update(listing.unavailable)
            for name, source in listing.models.items():
                found.setdefault(name, []).append(source)
        for uri, models, problem in self._catalog.remote_places():
            if models is None:
                seen.unreadable[uri] = problem
                continue
            for name, model in models.items():
                found.setdefault(name, []).append(model)
        # A mistake elsewhere must not take a good model down: it keeps serving, and the index has the reason.
        seen.refused.update({name: _repeated(name, sources) for name, sources in found.items() if len(sources) > 1})
        seen.sources = {name: found[name][0] for name in sorted(found) if name not in seen.refused}
        for name in seen.refused:
            # A refused model is present, so it is not removed. Without the reason it is tried again, changed or not.
            watched = self._watched.setdefault(name, _Watched())
            watched.was_refused, watched.misses = True, 0
        return seen

    def _change(self, name: str, watched: _Watched, look: Look | ListedLook, is_settled: bool) -> Change | None:
        """The change to make for a model whose files do not change any more."""
        tried = watched.tried
        if tried is not None and tried.files == look.files and not watched.was_refused:
            if watched.content is None:
                # The models of the start are hashed at a look, so that the start does not wait for it.
                watched.learn(self._contents.of(look))
            return None
        content = self._contents.of(look)
        if content is None:
            # It changed while it was read: it is still being written.
            watched.last = None
            return None
        if tried is not None and content == watched.content and is_settled and not watched.was_refused:
            # It was copied once more, or touched.
            watched.tried = look
            return None
        # Compared with what serves, not with the last load, which may have failed.
        unchanged = unchanged_versions(watched.serving, content, look.source)
        watched.tried, watched.content = look, content
        watched.serves_tried = watched.was_refused = False
        return Change(name, look.source, unchanged)

    def _missing(self, seen: _Seen, busy: Collection[str]) -> tuple[tuple[str, ...], bool]:
        """The models that were removed, and whether others may have been."""
        removed: list[str] = []
        is_moving = False
        for name in self._watched.keys() - seen.sources.keys() - seen.refused.keys():
            watched = self._watched[name]
            known = watched.last or watched.tried
            # A repository that cannot be read says nothing about its models: they stay.
            if known is not None and self._is_behind(known.source, seen):
                continue
            # A model that returns must look the same twice again: it may be half copied.
            watched.last, watched.misses = None, watched.misses + 1
            # While a load of it is under way its entry stays: ``note`` needs it.
            if watched.misses >= LOOKS_WITHOUT and name not in busy:
                removed.append(name)
                del self._watched[name]
            else:
                is_moving = True
        return tuple(sorted(removed)), is_moving

    @staticmethod
    def _is_behind(source: ModelSource | RemoteModel, seen: _Seen) -> bool:
        """Whether a model is in a repository that cannot be read, so that its state is unknown."""
        if not isinstance(source, ModelSource):
            return source.uri in seen.unreadable
        place = source.directory or source.single_file
        folders = (unreadable for unreadable in seen.unreadable if isinstance(unreadable, Path))
        return place is not None and any(place.absolute().is_relative_to(folder.absolute()) for folder in folders)


def _repeated(name: str, sources: Sequence[ModelSource | RemoteModel]) -> str:
    local = [source for source in sources if isinstance(source, ModelSource)]
    elsewhere = [source for source in sources if not isinstance(source, ModelSource)]
    return in_two(name, str(elsewhere[0].uri)) if elsewhere else duplicate(name, local).message
