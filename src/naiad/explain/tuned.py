"""The rows about a model that its server tunes while it serves."""

from __future__ import annotations

from typing import Any, Final

from naiad.explain.rows import FieldRow

_METRIC: Final = "naiad_tuned_setting"
_SUMMARIES: Final = {
    "instances": "Instances that serve now.",
    "threads": "Threads of each instance in its framework; 0 where the server does not choose them.",
    "max_batch_size": "The most rows of a batch now; never more than the configuration allows.",
    "max_queue_delay_microseconds": "How long a request waits now for others that may join its batch.",
}


def tuned_rows(found: Any) -> list[FieldRow]:
    """What self-tuning has set, and why.

    Args:
        found: the ``tuned`` of ``/v2/models/NAME/config/written``; None for a model that is not tuned.
    """
    if not isinstance(found, dict):
        return []
    try:
        setup, configured = found["setup"], found["configured"]
        origin = f"slo {found['objective']}"
        rows = [
            FieldRow(
                f"tuned.{name}",
                setup[name],
                "us" if name.endswith("microseconds") else "",
                f"{origin}; configured: {configured[name]}",
                summary,
                _METRIC,
            )
            for name, summary in _SUMMARIES.items()
        ]
        late = f"{found['late']} of {found['requests']}"
        state = "searching" if found["is_searching"] else "holding"
        return [
            *rows,
            FieldRow("tuned.reason", found["reason"], "", found["cause"], "Why.", "naiad_tuning_decisions"),
            FieldRow("tuned.state", state, "", origin, "Whether other setups are being tried.", ""),
            FieldRow("tuned.problem", found["problem"], "", origin, "Why the last change failed.", ""),
            FieldRow("tuned.late", late, "", origin, "Requests above the limit.", "naiad_slo_late_requests"),
        ]
    except (KeyError, TypeError):
        # A later server, which says it otherwise.
        return []
