"""Who may see the dashboard: by address, name, and where a request comes from."""

from __future__ import annotations

import pytest

from naiad.frontends.access.gate import Gate
from naiad.frontends.dashboard.access import DashboardAccess, host_name, is_loopback
from naiad.wire.http1.head import RequestHead


def head(host: str = "localhost:8000") -> RequestHead:
    return RequestHead("GET", "/dashboard/", "", (1, 1), {"host": host} if host else {})


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("", False),
        ("localhost", False),
    ],
)
def test_loopback_addresses(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:8000", "localhost"),
        ("[::1]:8000", "::1"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("a.example.", "a.example"),
        ("", ""),
    ],
)
def test_the_name_of_a_host_header(host: str, name: str) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "[::1]:8000", "127.0.0.1:8000", "naiad.localhost", ""])
def test_this_machine_is_served_under_its_own_names(host: str) -> None:
    assert DashboardAccess("auto", Gate(), has_keys=False).refusal(head(host), "127.0.0.1") == ""


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil.example"])
def test_other_names_are_refused_since_a_page_can_point_them_here(host: str) -> None:
    assert host in DashboardAccess("auto", Gate(), has_keys=False).refusal(head(host), "127.0.0.1")


def test_others_need_keys_or_an_option() -> None:
    refused = DashboardAccess("auto", Gate(), has_keys=False).refusal(head(), "10.0.0.7")
    assert "--api-key" in refused and "--dashboard=on" in refused
    assert DashboardAccess("on", Gate(), has_keys=False).refusal(head("a.example"), "10.0.0.7") == ""
    assert DashboardAccess("auto", Gate(), has_keys=True).refusal(head("a.example"), "10.0.0.7") == ""
