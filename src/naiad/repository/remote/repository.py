"""The interface of a remote repository for a catalog: the names of its models, and fetching one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from naiad.options.remote_uri import RemoteUri
from naiad.repository.remote.mirror.views import View
from naiad.repository.remote.stores.store import StoredFile

Listed = Mapping[str, tuple[int, str]]
"""The size in bytes and the version of each file of a model, by its path."""


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model in a remote repository.

    Attributes:
        name: its name.
        uri: the repository's address.
        fetch: mirrors the model and returns its folder, which the caller holds; blocks. Raises StoreError.
        files: its files; None where the store was not asked.
        namespace: as ``ModelSource.namespace``.
    """

    name: str
    uri: RemoteUri
    fetch: Callable[[], View]
    files: Listed | None = None
    namespace: str = ""

    @property
    def key(self) -> str:
        """The key of the model, as of a ``ModelSource``."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class RemoteRepository(Protocol):
    """A repository that is not on this machine. Its methods block, and may be called from several threads.

    Attributes:
        uri: its address.

    Each method may raise:
        StoreUnreachableError: the store does not respond, and the mirror lacks files.
        StoreError: the store refuses, or holds something that cannot be used.
        OptionError: the address or the credentials are wrong.
    """

    uri: RemoteUri

    def models(self, is_whole: bool) -> Mapping[str, RemoteModel]:
        """All models by name. With ``is_whole`` all files are listed at once, for callers that fetch most of them."""

    def find(self, name: str, may_be_old: bool) -> RemoteModel | None:
        """The model of that name as it is now, if there is one.

        With ``may_be_old`` the mirror's copy stands in for a store that does not respond.
        """

    def present(self) -> Mapping[str, RemoteModel]:
        """All models by name as they are now, with their files; never from a mirror."""


def listed(entries: Iterable[StoredFile]) -> Listed:
    """``entries`` as the files of a model."""
    return {entry.path: (entry.size, entry.version) for entry in entries}
