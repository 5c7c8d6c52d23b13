"""Requests for scheduler tests: only what a policy looks at."""

from __future__ import annotations

from naiad.request import InferRequest, RequestOptions


def request(rows: int = 1, key: object = "same", queued_ns: int = 0) -> InferRequest:
    """A queued request of ``rows`` rows whose inputs have the shapes ``key``."""
    return InferRequest(RequestOptions((), rows, key), {}, queued_ns=queued_ns)
