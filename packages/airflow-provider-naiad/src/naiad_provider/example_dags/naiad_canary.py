"""Release the challenger of a registered model: 20 % of the requests first, all of them if it does well."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from naiad_provider.operators import NaiadCanaryOperator
from naiad_provider.sensors import NaiadModelSensor

with DAG(
    "naiad_canary",
    schedule=None,
    tags=["naiad"],
    params={
        "model": Param("times", type="string", description="the name on the server"),
        "model_uri": Param("models:/times@challenger", type="string"),
        "watch_s": Param(600, type="number"),
        "min_requests": Param(100, type="integer"),
        "max_slowdown": Param(2.0, type="number", description="how many times slower than the present version"),
    },
) as dag:
    serving = NaiadModelSensor(task_id="serving", model="{{ params.model }}", poke_interval=5, timeout=600)
    release = NaiadCanaryOperator(
        task_id="release",
        model="{{ params.model }}",
        model_uri="{{ params.model_uri }}",
        percent=20,
        watch_s="{{ params.watch_s }}",
        min_requests="{{ params.min_requests }}",
        poll_s=1,
        conditions=[
            {"metric": "nv_inference_request_failure", "at_most": 0.01},
            {"metric": "nv_inference_request_duration_us", "at_most_stable": "{{ params.max_slowdown }}"},
        ],
    )
    serving >> release
