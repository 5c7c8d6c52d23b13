"""What replicas are made of: which models have them, how their counts move, and how a change reaches a front end."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from naiad.config.spec import BatchingSpec, InstanceGroupSpec, ModelSpec, QueuePolicySpec, QueueSpec
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.options import ServerOptions
from naiad.request import RequestOptions
from naiad.scheduling.admission import RequestBudget
from naiad.server.fronts.link import Link
from naiad.server.fronts.messages import MODELS
from naiad.server.fronts.remote_engine import ElsewhereError, RemoteEngine
from naiad.server.fronts.replicas.generation import Generation, GenerationPage
from naiad.server.fronts.replicas.replicas import Replicas
from naiad.server.fronts.replicas.rules import MOST_BYTES, ReplicaRules
from naiad.telemetry.metrics.model_statistics import ModelStatistics
from naiad.telemetry.metrics.moved_counts import add_counts, take_counts
from naiad.telemetry.metrics.recent_latencies import RecentLatencies
from support.event_loops import WAIT_S, run, until
from support.loaded_models import POISON, loaded, negate, picky, spec
from support.noted_requests import NotedRequest

FOUR = spec(count=4)
BATCHED = BatchingSpec((8,))


def share_of(
    model_spec: ModelSpec, fronts: int = 2, memory_bytes: int = 0, is_tuned: bool = False, is_open: bool = False
) -> int:
    found: list[int] = []

    async def share() -> None:
        with loaded(model_spec, negate) as model:
            model.statistics.memory_bytes = memory_bytes
            found.append(ReplicaRules(fronts, lambda _: is_tuned).share(model, is_open))

    run(share())
    return found[0]


@pytest.mark.parametrize(
    ("count", "fronts", "share"), [(1, 2, 0), (2, 2, 1), (3, 2, 1), (4, 2, 2), (3, 4, 0), (4, 0, 0)]
)
def test_instances_are_divided_among_the_front_ends(count: int, fronts: int, share: int) -> None:
    assert share_of(spec(count=count), fronts) == share


@pytest.mark.parametrize(("count", "fronts", "share"), [(1, 4, 1), (2, 4, 1), (8, 4, 2), (1, 0, 0)])
def test_a_model_without_an_instance_group_has_one_instance_in_each(count: int, fronts: int, share: int) -> None:
    assert share_of(spec(count=count), fronts, is_open=True) == share


def test_models_that_batch_at_once_have_replicas() -> None:
    assert share_of(spec(count=2, batching=BATCHED)) == 1


@pytest.mark.parametrize(
    "model_spec",
    [
        spec(count=4, batching=replace(BATCHED, max_queue_delay_ns=1000)),
        spec(count=4, batching=replace(BATCHED, preserve_ordering=True)),
        spec(count=4, batching=BATCHED, queue=QueueSpec(policy=QueuePolicySpec(max_size=4))),
        replace(FOUR, is_cached=True),
        replace(FOUR, backend="python"),
        replace(FOUR, instance_groups=(InstanceGroupSpec("m", "KIND_CPU", 2), InstanceGroupSpec("n", "KIND_CPU", 2))),
        replace(FOUR, instance_groups=(InstanceGroupSpec("m", "KIND_CPU", 4, host_policy="near"),)),
        replace(FOUR, instance_groups=(InstanceGroupSpec("m", "KIND_GPU", 4, gpus=(0,)),)),
    ],
    ids=["delay", "ordering", "queue", "cache", "python", "groups", "policy", "gpu"],
)
def test_what_connects_requests_keeps_a_model_in_one_process(model_spec: ModelSpec) -> None:
    assert share_of(model_spec) == share_of(model_spec, is_open=True) == 0


def test_large_and_tuned_models_stay_in_one_process() -> None:
    assert share_of(FOUR, memory_bytes=MOST_BYTES) == 2
    assert share_of(FOUR, memory_bytes=MOST_BYTES + 1) == 0
    assert share_of(FOUR, is_tuned=True) == 0


@pytest.mark.parametrize(
    ("given", "fronts"),
    [
        ({}, 3),
        ({"given": frozenset({"max_in_flight_requests"})}, 0),
        ({"given": frozenset({"model_memory_budget"})}, 0),
        ({"model_idle_unload_secs": 5}, 0),
        ({"slow_requests": 10}, 0),
        ({"rate_limit": "execution_count"}, 0),
    ],
)
def test_options_about_all_requests_keep_models_in_one_process(given: dict[str, Any], fronts: int) -> None:
    options = ServerOptions(frontend_processes=3, **given)
    assert ReplicaRules.of(options, lambda _: False).fronts == fronts


def test_counts_move_from_one_process_to_another() -> None:
    there, here, both = ModelStatistics(), ModelStatistics(), ModelStatistics()
    for part in (there, both):
        part.count_alone(3, 10, 1, 2, 3, 4)
        part.count_execution(8, 1, 2, 3)
        part.count_success(4, 8, 100, 10, 1, 2, 3)
        part.count_failure("BACKEND", 7)
        part.left["full"][8] += 2
        part.last_inference_ms = 50
    for part in (here, both):
        part.count_alone(3, 20, 1, 2, 3, 4)
        part.count_failure("OTHER", 5)
    here.last_inference_ms = 40
    counts = take_counts(there)
    assert counts is not None and take_counts(there) is None
    assert add_counts(here, counts) == 6
    assert [getattr(here, name) for name in here.__slots__ if name not in ("__weakref__",)] == [
        getattr(both, name) for name in both.__slots__ if name not in ("__weakref__",)
    ]


def test_latencies_move_where_somebody_watches() -> None:
    there, here = ModelStatistics(latencies=RecentLatencies()), ModelStatistics(latencies=RecentLatencies())
    assert isinstance(here.latencies, RecentLatencies)
    there.count_alone(1, 5000, 1, 2, 3, 4)
    counts = take_counts(there)
    assert counts is not None
    add_counts(ModelStatistics(), counts)
    add_counts(here, counts)
    assert here.latencies.quantiles_us([0.5]) == [5]
    there.count_alone(1, 7000, 1, 2, 3, 4)
    counts = take_counts(there)
    assert counts is not None
    add_counts(here, counts)
    assert here.latencies.quantiles_us([0.0, 1.0]) == [5, 7]


def test_a_model_counts_on_after_its_counts_were_taken() -> None:
    async def scenario() -> None:
        with loaded(spec(count=1), picky) as model:
            options = RequestOptions(("y",), 1, (("x", (1,)),))
            for values in ([1.0], [POISON], [2.0]):
                request = NotedRequest(options, {"x": np.array([values], np.float32)})
                model.submit(request)
                await asyncio.wait([asyncio.ensure_future(request.outputs())], timeout=WAIT_S)
                counts = take_counts(model.statistics)
                assert counts is not None
                assert add_counts(ModelStatistics(), counts) == 1
            assert model.statistics.success.count == 0

    run(scenario())


def test_a_page_shows_the_generation_of_another_process() -> None:
    generation, page = Generation(), GenerationPage()
    numbers = page.open(generation.descriptor())
    assert numbers[0] == 0
    generation.advance()
    assert numbers[0] == generation.number == 1
    page.close()
    page.close()
    generation.close()
    generation.close()


@contextmanager
def connected(remote: RemoteEngine) -> Iterator[Link]:
    """The engine's end of a link to a front end."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    loop = asyncio.get_running_loop()
    here = Link("the engine", ends[0], loop, remote.handlers(), remote.disconnect)
    there = Link("the front end", ends[1], loop, {}, lambda: None)
    remote.connect(here)
    try:
        yield there
    finally:
        here.close()
        there.close()


def test_a_front_end_runs_no_model_once_the_table_has_changed() -> None:
    """The message about the change may be on its way still."""

    async def scenario() -> None:
        replicas = Replicas(RequestBudget(), LoadSettings, lambda model: None)
        remote = RemoteEngine(RequestBudget(), replicas)
        remote.can_hand_over = True
        generation = Generation()
        with connected(remote) as link, loaded(spec(), negate) as model:
            link.give(generation.descriptor())
            link.post((MODELS, [], b"", 0))
            await until(lambda: replicas.known == 0)
            replicas.serving, replicas.latest = {("m", "1"): model}, {"m": model}
            assert remote.find("m", None) is remote.find("m", "1") is model
            generation.advance()
            for version in (None, "", "1"):
                with pytest.raises(ElsewhereError):
                    remote.find("m", version)
            link.post((MODELS, [], b"", 1))
            await until(lambda: replicas.known == 1)
            replicas.serving, replicas.latest = {("m", "1"): model}, {"m": model}
            assert remote.find("m", None) is model
        remote.disconnect()
        generation.close()

    run(scenario())


def test_a_descriptor_that_nobody_wants_is_closed() -> None:
    async def scenario() -> None:
        ends = socket.socketpair()
        for end in ends:
            end.setblocking(False)
        loop = asyncio.get_running_loop()
        seen: list[int] = []
        links = [Link("other", end, loop, {}, lambda: None) for end in ends]
        links[1].on_descriptor = seen.append
        read, write = os.pipe()
        links[0].give(write)
        await until(lambda: bool(seen))
        os.write(seen[0], b"x")
        assert os.read(read, 1) == b"x"
        for descriptor in (read, seen[0]):
            os.close(descriptor)
        for link in links:
            link.close()

    run(scenario())
