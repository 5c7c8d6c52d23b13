"""A line in the log for every batch that begins to run, for ``--log-verbose`` 2 and above."""

from __future__ import annotations

import logging
from typing import Final

from naiad.execution.batching.batch import Batch
from naiad.request import UNKNOWN_ID
from naiad.telemetry.logs.json_lines import MODEL, REQUEST_IDS
from naiad.telemetry.logs.server_log import BATCHES, verbose_level

logger = logging.getLogger("naiad")

_LEVEL: Final = verbose_level(BATCHES)
_MAX_IDS: Final = 16


def log_batch(model: str, batch: Batch) -> None:
    """Log what runs together, with the ids of the first 16 requests."""
    if not logger.isEnabledFor(_LEVEL):
        return
    requests = batch.singles()
    ids = [request.id or UNKNOWN_ID for request in requests[:_MAX_IDS]]
    more = f" and {len(requests) - _MAX_IDS} more" if len(requests) > _MAX_IDS else ""
    logger.log(
        _LEVEL,
        "model '%s' runs %d rows of %d requests%s: [request id: %s]%s",
        *(model, batch.rows, len(requests), f" ({batch.reason})" if batch.reason else "", ", ".join(ids), more),
        extra={MODEL: model, REQUEST_IDS: ids},
    )
