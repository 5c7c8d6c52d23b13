"""Patterns of routes as the path templates they stand for."""

from __future__ import annotations

import pytest

from naiad.frontends.http.v2.path_templates import templates_of


@pytest.mark.parametrize(
    ("pattern", "templates"),
    [
        ("/v2", {"/v2"}),
        (r"/a\.json", {"/a.json"}),
        (r"/m/(?P<model>[^/]+)(?:/v/(?P<v>[0-9]+))?/x", {"/m/{model}/x", "/m/{model}/v/{v}/x"}),
        (r"/(?:a|b)(?:/c)?", {"/a", "/b", "/a/c", "/b/c"}),
        (r"(?:/v2|/v2/(?P<m>[^/]+))/t", {"/v2/t", "/v2/{m}/t"}),
        (r"/regions/[^/]+/get", {"/regions/{region}/get"}),
    ],
)
def test_templates(pattern: str, templates: set[str]) -> None:
    found = templates_of(pattern)
    assert set(found) == templates
    assert len(found) == len(templates)


def test_a_pattern_that_cannot_be_shown_is_named() -> None:
    with pytest.raises(ValueError, match=r"'\.\*' cannot be shown as a path"):
        templates_of("/v2/.*")
