"""Namespaces: with ``--model-namespacing`` each repository is one, and models of one name may lie in several.

A model is known by its key then, ``<repository>/<name>``. Names have no slash, so a key is never taken for one.
"""

from __future__ import annotations

from dataclasses import replace

from naiad.repository.local.layout import Listing


def short_name(key: str) -> str:
    """The model's name in a key."""
    return key.rpartition("/")[2]


def namespace_of(key: str) -> str:
    """The namespace in a key, "" for a model without one."""
    return key.rpartition("/")[0]


def in_namespace(listing: Listing, namespace: str) -> Listing:
    """``listing`` with the models of a namespace by their keys."""
    sources = [replace(source, namespace=namespace) for source in listing.models.values()]
    problems = (replace(p, model=f"{namespace}/{p.model}" if p.model else "") for p in listing.problems)
    return Listing({source.key: source for source in sources}, tuple(problems))
