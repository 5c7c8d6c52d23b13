"""Which instances stay, go and come when a model gets other instance groups."""

from __future__ import annotations

from naiad.config.spec import InstanceGroupSpec
from naiad.execution.model.group_change import InstancePosition, regroup

CPU = InstanceGroupSpec("m_0", "KIND_CPU", 2)


def present(*places: tuple[InstanceGroupSpec, int]) -> dict[str, InstancePosition]:
    found = [InstancePosition(group, index) for group, index in places]
    return {place.name: place for place in found}


def names(places: list[InstancePosition]) -> list[str]:
    return [place.name for place in places]


def test_more_and_less() -> None:
    found = present((CPU, 0), (CPU, 1))
    leaving, coming = regroup(found, [InstanceGroupSpec("m_0", "KIND_CPU", 4)])
    assert (leaving, names(coming)) == ([], ["m_0_2", "m_0_3"])
    leaving, coming = regroup(found, [InstanceGroupSpec("m_0", "KIND_CPU", 1)])
    assert (leaving, coming) == (["m_0_1"], [])
    assert regroup(found, [CPU]) == ([], [])


def test_groups_of_one_kind_share_what_is_there() -> None:
    found = present((CPU, 0), (CPU, 1))
    one, other = InstanceGroupSpec("a", "KIND_CPU", 1), InstanceGroupSpec("b", "KIND_CPU", 2)
    leaving, coming = regroup(found, [one, other])
    assert (leaving, names(coming)) == ([], ["b_0"])


def test_another_kind_another_device_and_passive_ones() -> None:
    found = present((CPU, 0), (CPU, 1))
    for group in (
        InstanceGroupSpec("m_0", "KIND_MODEL", 1),
        InstanceGroupSpec("m_0", "KIND_GPU", 1, (0,)),
        InstanceGroupSpec("m_0", "KIND_CPU", 1, passive=True),
    ):
        leaving, coming = regroup(found, [group])
        # Their names are still in use.
        assert (leaving, names(coming)) == (["m_0_0", "m_0_1"], ["m_0_2"])


def test_names_in_use_are_not_given_again() -> None:
    _, coming = regroup(present((CPU, 1)), [InstanceGroupSpec("m_0", "KIND_CPU", 3)], taken=["m_0_0"])
    assert names(coming) == ["m_0_2", "m_0_3"]
