"""Which policy an instance has, and what this machine has to have for it."""

from __future__ import annotations

import logging

import pytest

from naiad.backend_api.host_policy import NO_POLICIES, HostPolicies
from naiad.config.spec import InstanceGroupSpec
from naiad.errors import ModelLoadError
from naiad.processes import affinity
from naiad.processes.affinity import ANYWHERE, Affinity, memory_nodes, server_cores

CPU = InstanceGroupSpec("g", "KIND_CPU", 2)
GPU = InstanceGroupSpec("g", "KIND_GPU", 2, (1, 4))
MODEL = InstanceGroupSpec("g", "KIND_MODEL", 1)
NAMED = InstanceGroupSpec("g", "KIND_CPU", 1, host_policy="mine")
needs_cores = pytest.mark.skipif(not server_cores(), reason="the system does not say which cores there are")


def test_the_name_is_that_of_the_configuration_or_of_the_device() -> None:
    names = [NO_POLICIES.name(CPU), NO_POLICIES.name(MODEL), NO_POLICIES.name(NAMED)]
    assert names == ["cpu", "model", "mine"]
    assert [NO_POLICIES.name(GPU, index) for index in range(3)] == ["gpu_1", "gpu_4", "gpu_1"]


def test_without_policies_threads_stay_where_they_are() -> None:
    assert NO_POLICIES.affinity(CPU) == NO_POLICIES.first(()) == ANYWHERE
    assert HostPolicies.of({}) == NO_POLICIES


@needs_cores
def test_instances_without_a_policy_have_all_cores_beside_others() -> None:
    """Not those of the thread that loads them."""
    everywhere = Affinity(tuple(sorted(server_cores())))
    policies = HostPolicies.of({"mine": Affinity((0,)), "model": Affinity(node=0)})
    assert policies.affinity(CPU) == policies.first(()) == everywhere
    assert policies.affinity(NAMED) == Affinity((0,))
    # Where no memory may be bound, without the node.
    assert policies.affinity(MODEL) == Affinity(everywhere.cores, Affinity(node=0).permitted().node)
    assert (policies.has_cores([CPU, MODEL]), policies.has_cores([CPU, NAMED])) == ("", "mine")


@needs_cores
def test_memory_that_may_not_be_bound_is_one_warning_of_the_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its workers are not told to bind it, and what is said of the instances is true."""
    monkeypatch.setattr(affinity, "warned_about", set())
    # No machine has it, so that the system refuses it.
    policies = HostPolicies.of({"cpu": Affinity((0,), 1022), "model": Affinity(node=1022)})
    with caplog.at_level(logging.WARNING, "naiad"):
        assert [policies.affinity(CPU), policies.first(()), policies.affinity(CPU, 1)] == 3 * [Affinity((0,))]
        assert policies.affinity(MODEL) == affinity.everywhere()
        described = policies.described([CPU, MODEL])
    (record,) = caplog.records
    assert "memory cannot be bound to a NUMA node" in record.getMessage()
    assert described == [
        "the instances of group 'g' run on core 0 (host policy 'cpu')",
        "the instances of group 'g' run on all cores (host policy 'model')",
    ]


def test_instances_of_one_place_are_counted_together() -> None:
    policies = HostPolicies.of({"cpu": Affinity((0,)), "gpu_1": Affinity((1,)), "gpu_4": Affinity((1,))})
    passive = InstanceGroupSpec("p", "KIND_CPU", 5, passive=True)
    groups = (CPU, GPU, passive)
    assert [policies.uniform(groups, Affinity((core,))) for core in (0, 1, 2)] == [2, 2, 1]


@needs_cores
def test_cores_and_nodes_that_are_missing_are_named() -> None:
    policies = HostPolicies.of({"cpu": Affinity((0, 800, 801)), "gpu_0": Affinity((900,))})
    # gpu_0 has no instance here.
    with pytest.raises(ModelLoadError) as caught:
        policies.check("m", [MODEL, CPU])
    assert str(caught.value).startswith(
        "model 'm': instance group 'g' has the host policy 'cpu' with cores 800-801, and the server may use "
    )
    assert str(caught.value).endswith("correct --host-policy=cpu,cpu-cores=..., or give the server more cores")
    policies.check("m", [MODEL, NAMED])
    if memory_nodes():
        wrong = HostPolicies.of({"mine": Affinity((), 1000)})
        with pytest.raises(ModelLoadError, match="host policy 'mine' with NUMA node 1000, and this machine has"):
            wrong.check("m", [NAMED])


def test_a_policy_that_is_not_set_is_remarked_on() -> None:
    (text,) = HostPolicies.of({"cpu": Affinity((0,))}).remarks("m", [CPU, NAMED])
    assert text == (
        "model 'm': instance group 'g' has the host policy 'mine', which no --host-policy sets (set are: cpu): its "
        "instances run on all cores"
    )
