"""``NaiadCanaryOperator``: release a version of a model by a canary."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.exceptions import AirflowFailException
from airflow.sdk import BaseOperator

from naiad.client.mlflow import Deployment, deploy, deploy_canary, find_deployed, promote, version_of, withdraw
from naiad_provider.hook import NaiadHook
from naiad_provider.metrics import Condition
from naiad_provider.triggers import CanaryTrigger, seen
from naiad_provider.watch import CanaryWatch, Verdict


class NaiadCanaryOperator(BaseOperator):  # type: ignore[misc]
    """Serve a model of MLflow with a share of the requests, watch it, then promote it or roll it back.

    The first version of a model has all requests at once, since there is nothing to compare it with. A version that is
    rolled back fails the task without retries. Returns the version that has the requests.

    Args:
        model: its name on the server.
        model_uri: its address in MLflow, such as ``models:/iris@challenger``.
        percent: the share of the requests, from 1 to 99.
        watch_s: how long it is watched, in seconds.
        conditions: what it has to keep, as fields of ``naiad_provider.metrics.Condition``.
        min_requests: how many requests it needs to be judged.
        poll_s: seconds between two looks at the metrics.
        flavor: of the files; "" for the first that a backend of the server reads.
        config: further fields of its configuration, as JSON values.
        deferrable: wait in the triggerer, without a worker.
        naiad_conn_id: the connection.
    """

    template_fields = ("model", "model_uri", "percent", "watch_s", "conditions", "min_requests", "flavor", "config")
    ui_color = "#d3ecf2"

    def __init__(
        self,
        *,
        model: str,
        model_uri: str,
        percent: int | str = 10,
        watch_s: float | str = 600,
        conditions: Sequence[Mapping[str, Any]] = (),
        min_requests: int | str = 100,
        poll_s: float = 10,
        flavor: str = "",
        config: Mapping[str, Any] | None = None,
        deferrable: bool = True,
        naiad_conn_id: str = NaiadHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.model_uri = model_uri
        self.percent = percent
        self.watch_s = watch_s
        self.conditions = list(conditions)
        self.min_requests = min_requests
        self.poll_s = poll_s
        self.flavor = flavor
        self.config = dict(config or {})
        self.deferrable = deferrable
        self.naiad_conn_id = naiad_conn_id
        self._canary: tuple[int, int] | None = None

    def execute(self, context: Any) -> int:
        """Deploy the canary and watch it."""
        percent = int(self.percent)
        if not 1 <= percent <= 99:
            raise AirflowFailException(f"percent is {percent}, expected 1 to 99")
        # Wrong conditions must not be found after the release.
        conditions = [Condition.read(condition).written() for condition in self.conditions]
        hook = NaiadHook(self.naiad_conn_id)
        address = hook.pinned(self.model_uri)
        version = version_of(address)
        wanted = Deployment(self.model, (address,), self.flavor, self.config)
        with hook.client() as client:
            if find_deployed(client, self.model) is None:
                deploy(client, wanted)
                self.log.info("version %d of '%s' is the first and has all requests", version, self.model)
                return version
            stable = deploy_canary(client, wanted, percent)
        self._canary = (version, stable)
        self.log.info("version %d of '%s' has %d %% of the requests of %d", version, self.model, percent, stable)
        try:
            page = hook.metrics()
        except OSError as error:
            reason = f"the metrics cannot be read: {error}"
            return self.decide(context, {"reason": reason, "version": version, "stable": stable})
        until = time.time() + float(self.watch_s)
        if self.deferrable:
            trigger = CanaryTrigger(
                self.naiad_conn_id,
                self.model,
                version,
                stable,
                conditions,
                int(self.min_requests),
                until,
                self.poll_s,
                page,
            )
            self.defer(trigger=trigger, method_name="decide")
        watch = CanaryWatch(self.model, version, stable, conditions, int(self.min_requests), page)
        event = {"reason": self._wait(hook, watch, until).reason, "version": version, "stable": stable}
        return self.decide(context, event)

    def _wait(self, hook: NaiadHook, watch: CanaryWatch, until: float) -> Verdict:
        while (verdict := seen(hook, watch, time.time() >= until)) is None:
            time.sleep(min(self.poll_s, max(0.0, until - time.time())))
        return verdict

    def decide(self, context: Any, event: Mapping[str, Any]) -> int:
        """Promote the version, or roll it back and fail.

        Raises:
            AirflowFailException: it was rolled back.
        """
        version, stable, reason = int(event["version"]), int(event["stable"]), str(event["reason"])
        with NaiadHook(self.naiad_conn_id).client() as client:
            if reason:
                withdraw(client, self.model, version, stable)
                raise AirflowFailException(f"version {version} of '{self.model}' was rolled back to {stable}: {reason}")
            promote(client, self.model, version)
        self.log.info("version %d of '%s' has all requests", version, self.model)
        return version

    def on_kill(self) -> None:
        """Give the requests back when the task is stopped while it watches."""
        if self._canary is not None:
            with NaiadHook(self.naiad_conn_id).client() as client:
                withdraw(client, self.model, *self._canary)
