"""Airflow operators that release models on a Naiad server by canaries."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """What Airflow shows of this provider."""
    return {
        "package-name": "airflow-provider-naiad",
        "name": "Naiad",
        "description": "Releases of models on a Naiad server",
        "versions": ["0.1.0"],
        "connection-types": [
            {"connection-type": "naiad", "hook-class-name": "naiad_provider.hook.NaiadHook"},
        ],
    }
