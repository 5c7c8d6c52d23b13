"""The cases by name, in the order in which they run and are printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..figures import Figure
from ..settings import Settings
from . import (
    bytes_beside,
    cache_hit,
    decoupled_streams,
    ensemble,
    execution,
    growth,
    grpc_growth,
    grpc_peers,
    grpc_perf_analyzer,
    grpc_unary,
    heavy,
    json_beside,
    large,
    linear_model,
    load_beside,
    load_rounds,
    mixed,
    mlp,
    python_chain,
    python_identity,
    python_round_trip,
    python_sequences,
    python_spin,
    python_start,
    queue_curve,
    reload,
    start,
    tail,
)

Case = Callable[[Settings], Iterator[Figure]]

CASES: Mapping[str, Case] = {
    "mlp": mlp.measure,
    "large": large.measure,
    "linear_model": linear_model.measure,
    "tail": tail.measure,
    "heavy": heavy.measure,
    "start_ready": start.start_ready,
    "idle_memory": start.idle_memory,
    "import_time": start.import_time,
    "growth": growth.measure,
    "errors_beside_good": mixed.measure,
    "json_beside": json_beside.json_beside,
    "bytes_beside": bytes_beside.bytes_beside,
    "grpc": grpc_unary.measure,
    "grpc_peers": grpc_peers.measure,
    "grpc_perf_analyzer": grpc_perf_analyzer.measure,
    "grpc_growth": grpc_growth.measure,
    "python_identity": python_identity.small,
    "python_600kb": python_identity.image,
    "python_600kb_shm": python_identity.image_in_regions,
    "python_10mb": python_identity.ten_megabytes,
    "python_chain": python_chain.python_chain,
    "python_round_trip": python_round_trip.python_round_trip,
    "python_start": python_start.python_start,
    "python_memory": python_start.python_memory,
    "python_spin": python_spin.python_spin,
    "python_sequences": python_sequences.measure,
    "decoupled_python": decoupled_streams.python,
    "decoupled_square": decoupled_streams.square,
    "ensemble": ensemble.measure,
    "execution": execution.measure,
    "cache_hit": cache_hit.measure_hits,
    "queue_curve": queue_curve.measure,
    "reload": reload.measure,
    "load_beside": load_beside.measure,
    "load_rounds": load_rounds.measure,
}
