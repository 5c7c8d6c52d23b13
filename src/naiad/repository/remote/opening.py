"""From the addresses on the command line to repositories."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from naiad.errors import OptionError
from naiad.options.remote_uri import CLOUD, MLFLOW, RemoteUri
from naiad.repository.remote.mirror.mirror import Mirror
from naiad.repository.remote.repository import RemoteRepository
from naiad.repository.remote.stores.store import Store

MOUNTS: Final = {
    "s3": "TRITON_AWS_MOUNT_DIRECTORY",
    "gs": "TRITON_GCS_MOUNT_DIRECTORY",
    "as": "TRITON_AZURE_MOUNT_DIRECTORY",
}
"""The reference's variables for the folder that models of one kind of store are copied to."""


class Mirrors:
    """The mirrors of one server: from its options, and from the reference's variables.

    Args:
        folder: ``--model-repository-mirror``.
        limit: ``--model-repository-mirror-size``.

    Raises:
        OptionError: the folder's name has a "~" that cannot be expanded.
    """

    def __init__(self, folder: str, limit: int, environ: Mapping[str, str] | None = None) -> None:
        try:
            self._folder = Path(folder).expanduser().absolute()
        except RuntimeError as error:
            raise OptionError(f"--model-repository-mirror is '{folder}': {error}; name a folder") from None
        self._limit = limit
        self._environ = os.environ if environ is None else environ
        self._open: dict[Path, Mirror] = {}

    def of(self, scheme: str) -> Mirror:
        """The mirror for repositories of that scheme.

        Raises:
            OptionError: its folder cannot be used.
        """
        folder = self._folder
        # The folder has to exist, as in the reference. It may be an earlier mirror, which a second start can use.
        if mount := self._environ.get(MOUNTS.get(scheme, ""), ""):
            folder = Path(mount).absolute()
            if not folder.is_dir():
                raise OptionError(f"{MOUNTS[scheme]} names '{mount}', which is no folder: make it, empty")
        if folder not in self._open:
            mirror = Mirror(folder, self._limit)
            mirror.open()
            self._open[folder] = mirror
        return self._open[folder]

    def close(self) -> None:
        """End every transfer, and release all folders in use."""
        for mirror in self._open.values():
            mirror.close()


def open_repository(uri: RemoteUri, mirrors: Mirrors, may_be_model: bool = False) -> RemoteRepository:
    """The repository behind ``uri``; its store is not read yet. With ``may_be_model`` it may be one model's folder.

    Raises:
        OptionError: the address, the credentials or the mirror cannot be used.
    """
    mirror = mirrors.of(uri.scheme)
    # Imported by scheme: a server pays for the stores that it uses.
    if uri.scheme in MLFLOW:
        from naiad.repository.remote.mlflow_repository import MlflowRepository

        return MlflowRepository(uri, mirror)
    if uri.scheme in CLOUD:
        return _bucket(uri, mirror, may_be_model)
    from naiad.repository.remote.archives import ArchiveRepository

    return ArchiveRepository(uri, mirror)


def _bucket(uri: RemoteUri, mirror: Mirror, may_be_model: bool) -> RemoteRepository:
    from naiad.repository.remote.bucket import BucketRepository
    from naiad.repository.remote.stores.cloud import open_cloud, place_of

    place = place_of(uri)

    def open_above() -> tuple[Store, str]:
        # The folder's name is the model's, so the store of one model begins a folder above it.
        prefix, _, name = place.prefix.rpartition("/")
        return open_cloud(uri, replace(place, prefix=prefix)), name

    above = open_above if may_be_model and place.prefix else None
    return BucketRepository(uri, open_cloud(uri, place), mirror, above, is_bucket=not place.prefix)
