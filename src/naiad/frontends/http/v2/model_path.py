"""The path of a model, with which many routes begin."""

from __future__ import annotations

from typing import Final

from naiad.config.routes import ALIAS_PATTERN

# Possessive quantifiers: names in paths are matched without backtracking.
MODEL: Final = rf"/v2/models/(?P<model>[^/]++)(?:/versions/(?P<version>[0-9]+|{ALIAS_PATTERN}))?"
"""A regular expression with the groups ``model`` and ``version``."""
