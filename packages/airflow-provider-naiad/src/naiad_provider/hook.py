"""``NaiadHook``: a connection of Airflow as a client of a server."""

from __future__ import annotations

import json
import os
import urllib.parse
import urllib.request
from typing import Any, Final

from airflow.exceptions import AirflowException
from airflow.sdk.bases.hook import BaseHook

from naiad.client import Client

METRICS_PORT: Final = 8002
HTTP_PORT: Final = 8000
_REPLY_S: Final = 30


class NaiadHook(BaseHook):  # type: ignore[misc]
    """Host, port and password (an API key) of a connection of the type ``naiad``.

    Its extra fields are ``metrics_url`` (port 8002 of the host by default), ``tracking_uri`` of MLflow (by default
    ``MLFLOW_TRACKING_URI``) and ``scheme``.
    """

    conn_name_attr = "naiad_conn_id"
    default_conn_name = "naiad_default"
    conn_type = "naiad"
    hook_name = "Naiad"

    def __init__(self, naiad_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.naiad_conn_id = naiad_conn_id

    def client(self, timeout_s: float = 3600) -> Client:
        """A client; the caller closes it. A load may take long."""
        found = self.get_connection(self.naiad_conn_id)
        scheme = found.extra_dejson.get("scheme", "http")
        headers = {"Authorization": f"Bearer {found.password}"} if found.password else {}
        url = f"{scheme}://{found.host or 'localhost'}:{found.port or HTTP_PORT}"
        return Client(url, headers=headers, timeout_s=timeout_s)

    def metrics(self) -> str:
        """The metrics page."""
        found = self.get_connection(self.naiad_conn_id)
        url = found.extra_dejson.get("metrics_url") or f"http://{found.host or 'localhost'}:{METRICS_PORT}/metrics"
        request = urllib.request.Request(url)
        if found.password:
            request.add_header("Authorization", f"Bearer {found.password}")
        with urllib.request.urlopen(request, timeout=_REPLY_S) as response:
            return str(response.read().decode())

    def pinned(self, uri: str) -> str:
        """``models:/<name>/<version>`` for ``models:/<name>@<alias>``; other addresses as they are.

        Raises:
            AirflowException: no MLflow server is named, or it has no such alias.
        """
        name, at, alias = uri.removeprefix("models:/").partition("@")
        if not uri.startswith("models:/") or not at:
            return uri
        found = self.get_connection(self.naiad_conn_id)
        base = found.extra_dejson.get("tracking_uri") or os.environ.get("MLFLOW_TRACKING_URI")
        if not base:
            raise AirflowException(f"'{uri}' needs MLflow: set tracking_uri of the connection, or MLFLOW_TRACKING_URI")
        query = urllib.parse.urlencode({"name": urllib.parse.unquote(name), "alias": alias})
        url = f"{base.rstrip('/')}/api/2.0/mlflow/registered-models/alias?{query}"
        try:
            with urllib.request.urlopen(url, timeout=_REPLY_S) as response:
                version: Any = json.load(response)["model_version"]["version"]
        except (OSError, ValueError, KeyError) as error:
            raise AirflowException(f"MLflow does not say what '{uri}' is: {error}") from error
        return f"models:/{name}/{version}"
