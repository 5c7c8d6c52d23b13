"""What a catalog knows of a remote repository: the names of its models, and how to get one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from naiad.options.remote_uri import RemoteUri
from naiad.repository.remote.views import View


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model that lies in a remote repository.

    Attributes:
        name: its name.
        uri: the repository's address.
        fetch: mirrors it and gives back its folder, which the caller holds; blocks. Raises StoreError.
    """

    name: str
    uri: RemoteUri
    fetch: Callable[[], View]

    @property
    def key(self) -> str:
        """As ``ModelSource.key``: remote repositories are no namespaces."""
        return self.name


class RemoteRepository(Protocol):
    """A repository that is not on this machine. Its methods block, and may be called from several threads.

    Attributes:
        uri: its address.

    Each method may raise:
        StoreUnreachableError: the store does not answer, and the mirror does not have what it takes.
        StoreError: it refuses, or holds something that cannot be used.
        OptionError: the address or the credentials are wrong.
    """

    uri: RemoteUri

    def models(self, is_whole: bool) -> Mapping[str, RemoteModel]:
        """All models by name. With ``is_whole`` all files are listed at once, for who fetches most of them."""

    def find(self, name: str, may_be_old: bool) -> RemoteModel | None:
        """The model of that name as it is now, if there is one.

        ``may_be_old`` allows for what the mirror has when the store does not answer.
        """
