"""Host policies: on which cores the instances of an instance group run, and on which NUMA node their memory is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from naiad.errors import ModelLoadError
from naiad.processes.affinity import ANYWHERE, Affinity, everywhere, memory_nodes, numbers_text, server_cores

if TYPE_CHECKING:
    from naiad.config.spec import InstanceGroupSpec

FRONTEND: Final = "frontend"
"""The policy of the event loop and of the threads that serve it."""
_CPU: Final = "cpu"


@dataclass(frozen=True, slots=True)
class HostPolicies:
    """The host policies of a server (``--host-policy``).

    Attributes:
        affinities: by name; policies that no instance has included.
        elsewhere: where instances without a policy run: ``ANYWHERE`` where no policy is set at all, else all cores of
            the server, so that they do not inherit those of another thread.
    """

    affinities: Mapping[str, Affinity] = field(default_factory=dict)
    elsewhere: Affinity = ANYWHERE

    @classmethod
    def of(cls, affinities: Mapping[str, Affinity]) -> HostPolicies:
        """The policies with these names."""
        return cls(dict(affinities), everywhere() if affinities else ANYWHERE)

    def name(self, group: InstanceGroupSpec, index: int = 0) -> str:
        """The policy of the ``index``-th instance of a group: that of the configuration, or that of its device."""
        if group.host_policy:
            return group.host_policy
        gpu = group.gpu(index)
        if gpu is not None:
            return f"gpu_{gpu}"
        return "model" if group.kind == "KIND_MODEL" else _CPU

    def affinity(self, group: InstanceGroupSpec, index: int = 0) -> Affinity:
        """Where the ``index``-th instance of a group runs."""
        return self._affinity_of(self.name(group, index))

    def first(self, groups: Sequence[InstanceGroupSpec]) -> Affinity:
        """Where the first instance of a model runs; ``groups`` are empty for a configuration without any."""
        return self.affinity(groups[0]) if groups else self._affinity_of(_CPU)

    def _affinity_of(self, name: str) -> Affinity:
        known = self.affinities.get(name)
        if known is None:
            return self.elsewhere
        # Here, not in each worker: what this machine does not permit is one warning.
        found = known.permitted()
        # A policy of memory alone leaves the cores as they are.
        return found if found.cores else Affinity(self.elsewhere.cores, found.node)

    def of_process(self) -> Affinity:
        """Where the threads of this process run, for a framework that has one pool of them for all models."""
        return everywhere() if self.affinities else ANYWHERE

    def has_cores(self, groups: Sequence[InstanceGroupSpec]) -> str:
        """The first policy of these groups that chooses cores, "" without one."""
        names = [self.name(group, index) for group in groups for index in _devices(group)] if groups else [_CPU]
        return next((name for name in names if name in self.affinities and self.affinities[name].cores), "")

    def uniform(self, groups: Sequence[InstanceGroupSpec], affinity: Affinity) -> int:
        """How many serving instances of a model run where ``affinity`` says, at least one."""
        found = 0
        for group in groups:
            if not group.passive:
                found += sum(self.affinity(group, index) == affinity for index in range(group.count))
        return max(1, found)

    def check(self, model: str, groups: Iterable[InstanceGroupSpec]) -> None:
        """Check that this machine has what the policies of these groups ask for.

        Raises:
            ModelLoadError: it has not; the text names the cores that are missing, and those that there are.
        """
        for place, group in enumerate(groups):
            for index in _devices(group):
                if problem := self.problem(self.name(group, index)):
                    raise ModelLoadError(f"model '{model}': instance group '{group.name or place}' has the {problem}")

    def problem(self, name: str) -> str:
        """What a policy asks for that this machine does not have, "" for nothing."""
        found = self.affinities.get(name)
        if found is None:
            return ""
        cores, nodes = server_cores(), memory_nodes()
        if cores and (lost := set(found.cores) - cores):
            word = "core" if len(lost) == 1 else "cores"
            return (
                f"host policy '{name}' with {word} {numbers_text(lost)}, and the server may use {numbers_text(cores)} "
                f"only; correct --host-policy={name},cpu-cores=..., or give the server more cores"
            )
        if nodes and found.node is not None and found.node not in nodes:
            return (
                f"host policy '{name}' with NUMA node {found.node}, and this machine has {numbers_text(nodes)} only; "
                f"correct --host-policy={name},numa-node=N"
            )
        return ""

    def described(self, groups: Iterable[InstanceGroupSpec]) -> list[str]:
        """Where the instances run that have a policy, in words."""
        found: list[str] = []
        for group in groups:
            names = dict.fromkeys(self.name(group, index) for index in _devices(group))
            found += [
                f"the instances of group '{group.name}' run on {self.affinities[name].permitted()} "
                f"(host policy '{name}')"
                for name in names
                if name in self.affinities
            ]
        return found

    def remarks(self, model: str, groups: Iterable[InstanceGroupSpec]) -> list[str]:
        """Policies that a configuration names and nothing sets, each as a warning."""
        known = _known(self.affinities)
        return [
            f"model '{model}': instance group '{group.name}' has the host policy '{group.host_policy}', which no "
            f"--host-policy sets ({known}): its instances run on all cores"
            for group in groups
            if group.host_policy and group.host_policy not in self.affinities
        ]


def _known(names: Iterable[str]) -> str:
    found = ", ".join(sorted(names))
    return f"set are: {found}" if found else "none is set"


NO_POLICIES: Final = HostPolicies()


def _devices(group: InstanceGroupSpec) -> range:
    """The instances of a group that may differ in their policy: one for each GPU."""
    return range(len(group.gpus) or 1) if group.kind == "KIND_GPU" else range(1)
