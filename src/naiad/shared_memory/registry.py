"""The regions that are registered, by name: system shared memory and CUDA shared memory share one set of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar
from weakref import WeakSet

from naiad.bounded_dict import BoundedDict
from naiad.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError, UnavailableError, UnsupportedError
from naiad.shared_memory.cuda import CudaRegion, stop_driver
from naiad.shared_memory.region import Region, RegionPart, RegionRef, SystemRegion
from naiad.shared_memory.spec import RegionOptions
from naiad.shared_memory.tensor_ref import Array

MAX_REGIONS: Final = 4096
"""The most open regions, unregistered ones in use included. Each is an open file."""

DISABLED: Final = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
LONGEST_NAME: Final = 1024
MAX_CACHED: Final = 1024
_LARGEST: Final = 2**64 - 1
_Region = TypeVar("_Region")


class LookedUp(NamedTuple):
    """The regions of requests with the same options; see ``RegionRegistry.keep``.

    Attributes:
        regions_from: ``ServingModel.regions_from`` of the model.
        inputs: placeholders for the inputs in regions, which the model reads itself.
        outputs: the parts for outputs.
    """

    options: RegionOptions
    regions_from: int
    inputs: Mapping[str, Array]
    outputs: Mapping[str, RegionPart]


class RegionRegistry:
    """All regions of the server. Used on the event loop only.

    Args:
        is_allowed: clients may register regions and use them (``--allow-client-shm``).
    """

    def __init__(self, is_allowed: bool = False) -> None:
        self.is_allowed = is_allowed
        self._system: dict[str, SystemRegion] = {}
        self._cuda: dict[str, CudaRegion] = {}
        self._open: WeakSet[SystemRegion | CudaRegion] = WeakSet()
        # By the identity of the options: comparing them would cost more than looking the regions up. The value refers
        # to the options, so no other object gets their identity.
        self._cached: dict[int, LookedUp] = BoundedDict(MAX_CACHED)

    # Registering

    def check_new(self, name: str) -> None:
        """Check that a region of this name may be registered.

        Raises:
            UnsupportedError: shared memory is off.
            AlreadyExistsError: the name is taken.
            InvalidArgumentError: the name is empty or too long.
            UnavailableError: there are too many regions.
        """
        self.check_allowed()
        if not name or len(name) > LONGEST_NAME:
            raise InvalidArgumentError(
                f"failed to register shared memory region '{name[:40]}': invalid args, a region needs a name of 1 to "
                f"{LONGEST_NAME} characters, found one of {len(name)}"
            )
        if name in self._system or name in self._cuda:
            raise AlreadyExistsError(f"shared memory region '{name}' already in manager")
        if len(self._open) >= MAX_REGIONS:
            raise UnavailableError(
                f"cannot register shared memory region '{name}': {len(self._open)} regions are open, at most "
                f"{MAX_REGIONS} may be. Unregister those that are not needed"
            )

    def check_allowed(self) -> None:
        """Check that shared memory may be used.

        Raises:
            UnsupportedError: the server does not allow it.
        """
        if not self.is_allowed:
            raise UnsupportedError(DISABLED)

    def register_system(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Register a part of a POSIX shared memory object; errors as ``check_new`` and ``SystemRegion``."""
        self.check_new(name)
        # Opened before anything changes: its error leaves the registry as it was.
        region = SystemRegion(name, key, offset, byte_size)
        self._cached.clear()
        self._system[name] = region
        self._open.add(region)

    def add_cuda(self, region: CudaRegion) -> None:
        """Register opened memory of a device; errors as ``check_new``."""
        self.check_new(region.name)
        self._cached.clear()
        self._cuda[region.name] = region
        self._open.add(region)

    def unregister_system(self, name: str) -> None:
        """Remove the name of a region, with "" of all regions; unknown names are no error."""
        self.check_allowed()
        self._cached.clear()
        _forget(self._system, name)

    def unregister_cuda(self, name: str) -> None:
        """Remove the name of a region of a device, with "" of all; unknown names are no error."""
        self.check_allowed()
        self._cached.clear()
        _forget(self._cuda, name)

    # Looking up

    def system(self, name: str) -> list[SystemRegion]:
        """The region of a name, or with "" all by name, including unregistered regions in use.

        Raises:
            NotFoundError: no region has that name.
        """
        # A registered region comes before an unregistered one of the same name that is still in use.
        used = {r.name: r for r in self._open if isinstance(r, SystemRegion)}
        return _find(used | self._system, name, "system")

    def cuda(self, name: str) -> list[CudaRegion]:
        """The regions of devices, as ``system``."""
        used = {r.name: r for r in self._open if isinstance(r, CudaRegion)}
        return _find(used | self._cuda, name, "cuda")

    def part(self, ref: RegionRef) -> RegionPart:
        """The part that a request names.

        Raises:
            NotFoundError: there is no such region.
            InvalidArgumentError: the part is not inside it.
        """
        name, offset, size = ref
        region: Region | None = self._system.get(name) or self._cuda.get(name)
        if region is None:
            self.check_allowed()
            # With shared memory off there are no regions, and the error should say why.
            raise NotFoundError(f"Unable to find shared memory region: '{name}'")
        whole = region.byte_size
        if not 0 <= offset <= whole or (offset == whole and size):
            raise InvalidArgumentError(f"Invalid offset for shared memory region: '{name}'")
        if size < 0 or offset + size > whole:
            # The reference's 64-bit sum would overflow; its text tells the two cases apart.
            if offset + size > _LARGEST:
                raise InvalidArgumentError(
                    f"Integer overflow detected: byte_size {size} + offset {offset} is more than {_LARGEST}, for "
                    f"shared memory region: '{name}'"
                )
            raise InvalidArgumentError(f"Invalid offset + byte size for shared memory region: '{name}'")
        return RegionPart(region, offset, size)

    def keep(self, found: LookedUp) -> None:
        """Cache the regions of some options, until any name is registered or removed: it may then mean other memory."""
        self._cached[id(found.options)] = found

    def recall(self, options: RegionOptions, regions_from: int) -> LookedUp | None:
        """The cached regions of these options, for a model with this ``regions_from``."""
        found = self._cached.get(id(options))
        return found if found is not None and found.regions_from == regions_from else None

    def close(self) -> None:
        """Drop all regions."""
        self._cached.clear()
        self._system.clear()
        self._cuda.clear()
        stop_driver()


def _forget(regions: dict[str, SystemRegion] | dict[str, CudaRegion], name: str) -> None:
    if name:
        regions.pop(name, None)
    else:
        regions.clear()


def _find(regions: Mapping[str, _Region], name: str, kind: str) -> list[_Region]:
    if not name:
        return [regions[key] for key in sorted(regions)]
    if name not in regions:
        raise NotFoundError(f"Unable to find {kind} shared memory region: '{name}'")
    return [regions[name]]
