"""The effect of scrapes of the metrics of many models on the tail of small requests."""

from __future__ import annotations

from collections.abc import Iterator

from .. import models
from ..figures import Figure
from ..infer import Request, binary_request
from ..servers import METRICS
from ..settings import Settings
from .json_beside import DIMS, beside
from .mlp import input_row

MODELS = 300
SCRAPERS = 2


def scrapes_beside(settings: Settings) -> Iterator[Figure]:
    """p99 of small requests alone, and while others read the page of metrics one time after the other."""
    repository = settings.work / "scrapes-beside"
    models.add_identity(repository, "identity", DIMS, max_batch_size=8)
    for number in range(MODELS - 1):
        models.add_identity(repository, f"other_{number}", DIMS, max_batch_size=8)
    small = binary_request("identity", {"INPUT0": input_row()}, "OUTPUT0")
    scrape = Request("/metrics", {}, b"", "GET")
    note = f"{SCRAPERS} scrapers of {MODELS} models"
    yield from beside(settings, repository, small, scrape, "scrapes_beside", note, SCRAPERS, METRICS)
