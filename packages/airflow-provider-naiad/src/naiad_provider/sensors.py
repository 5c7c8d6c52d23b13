"""``NaiadModelSensor``: wait until a model is ready."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseSensorOperator

from naiad_provider.hook import NaiadHook
from naiad_provider.triggers import ModelReadyTrigger, is_ready


class NaiadModelSensor(BaseSensorOperator):  # type: ignore[misc]
    """Waits until a model is ready on the server.

    Args:
        model: its name.
        version: a version or an alias; "" for the one that the server chooses.
        deferrable: wait in the triggerer, without a worker.
        naiad_conn_id: the connection.
    """

    template_fields = ("model", "version")

    def __init__(
        self,
        *,
        model: str,
        version: str = "",
        deferrable: bool = True,
        naiad_conn_id: str = NaiadHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.version = version
        self.deferrable = deferrable
        self.naiad_conn_id = naiad_conn_id

    def poke(self, context: Any) -> bool:
        """Whether it is ready now."""
        return is_ready(NaiadHook(self.naiad_conn_id), self.model, self.version)

    def execute(self, context: Any) -> Any:
        """Wait, in the triggerer where that is wanted."""
        if not self.deferrable:
            return super().execute(context)
        if not self.poke(context):
            trigger = ModelReadyTrigger(self.naiad_conn_id, self.model, self.version, self.poke_interval)
            self.defer(trigger=trigger, method_name="finish")
        return None

    def finish(self, context: Any, event: Any) -> None:
        """End after the trigger."""
