"""Which package may import which, annotations and imports in functions included (docs/architecture.md says why)."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest

from support.source_tree import PACKAGE, Import, imports, is_internal, modules, tree

MAX_FILES = 25
# What everything stands on.
GROUND = ("errors", "clock", "version", "extras", "bounded_dict", "cache_folder", "folder_lease", "spelling")
# A package, or a module, and what it may import beside the ground and itself. The longest name that fits a module
# counts. A package that is allowed allows its sub-packages.
ALLOWED: dict[str, tuple[str, ...]] = {
    "worker": (),
    "worker.ipc": (),
    "worker.api": ("worker.ipc",),
    "worker.runtime": ("worker.api", "worker.ipc"),
    "python_backend": ("worker.api",),
    "eventloop": (),
    "processes": (),
    "options": ("processes",),
    "tensor": ("worker.ipc",),
    "shared_memory": ("gpus", "tensor"),
    "request": ("shared_memory", "tensor"),
    "gpus": ("worker.runtime.lost_gpu",),
    "config": ("gpus.usable", "options.latency_objective", "options.metric_families", "tensor"),
    "binding": ("tensor",),
    "wire": (),
    "wire.http1": ("wire.compression", "worker.ipc.buffer_pool", "worker.ipc.receive_pools"),
    "wire.http2": (),
    "wire.grpc": ("wire.compression", "wire.http1", "wire.http2", "worker.ipc.buffer_pool"),
    "wire.openai": ("request", "wire.json_text"),
    "wire.v2": ("config.spec", "request", "shared_memory", "tensor", "wire.json_text", "wire.proto_fields"),
    "telemetry.metrics": ("options.metric_families",),
    "telemetry.logs": ("options", "request"),
    "telemetry.slow": ("request",),
    "telemetry.tracing": ("options", "request", "shared_memory", "tensor"),
    "scheduling": ("request", "scheduling.batcher", "scheduling.sequence", "telemetry.metrics"),
    "scheduling.queue": ("config.spec", "request"),
    "scheduling.batcher": ("config", "request", "scheduling.queue"),
    "scheduling.sequence": ("config.spec", "request", "scheduling.batcher", "scheduling.queue"),
    "scheduling.ensemble": ("config",),
    "scheduling.traffic": (),
    "scheduling.tuning": ("telemetry.metrics",),
    "cache": ("config.spec", "options", "request", "telemetry.metrics", "tensor"),
    "backend_api": ("config.spec", "processes", "request", "tensor"),
    "execution.model_directory": ("config.spec", "request", "tensor"),
    "execution.batching": ("config", "request", "scheduling.batcher", "shared_memory", "tensor", "worker.ipc"),
    "execution.instances": (
        *("backend_api", "config.spec", "execution.batching", "gpus.lost", "request", "tensor", "worker.ipc"),
    ),
    "execution.worker": (
        *("backend_api", "config", "eventloop", "execution.batching", "execution.instances"),
        *("execution.model_directory", "execution.worker.codec", "request", "scheduling.flow_control"),
        *("processes", "telemetry.logs", "telemetry.metrics", "tensor", "worker"),
    ),
    "execution.worker.codec": ("config.spec", "execution.batching", "request", "shared_memory", "tensor", "worker.ipc"),
    "execution.model": (
        *("backend_api", "cache", "config", "eventloop", "execution.batching", "execution.instances"),
        *("execution.model_directory", "execution.worker", "gpus.lost", "request", "scheduling", "shared_memory"),
        *("telemetry", "tensor", "worker.ipc"),
    ),
    # Its model passes on to ``LoadedModel`` what any model is made of: a backend, and the models that it can call.
    "execution.sequence": (
        *("backend_api", "config", "eventloop", "execution.batching", "execution.instances", "execution.model"),
        *("execution.model_directory", "request", "scheduling", "telemetry", "tensor", "worker.ipc"),
    ),
    "execution.ensemble": (
        *("cache", "config", "execution.batching", "execution.instances", "execution.model"),
        *("execution.model_directory", "request", "scheduling", "telemetry", "tensor", "worker.ipc"),
    ),
    # Frameworks know each other by name alone, through the registry.
    "backends.registry": ("backend_api", "backends.python", "backends.shared", "config", "gpus.driver"),
    "backends.placement": (
        *("backend_api", "backends.environments", "backends.out_of_process", "backends.registry"),
        *("backends.shared", "config", "execution.worker"),
    ),
    "backends.shared": ("config", "processes", "tensor"),
    "backends.builtin": ("backend_api", "backends.python", "backends.shared", "config.spec", "request"),
    "backends.callable": ("backend_api", "binding", "config.spec"),
    "backends.fil": ("backend_api", "backends.shared", "config", "tensor"),
    "backends.keras": ("backend_api", "backends.shared", "config", "processes", "tensor"),
    "backends.onnx": ("backend_api", "backends.shared", "config", "gpus.driver", "processes", "tensor"),
    "backends.openvino": ("backend_api", "backends.shared", "config", "processes", "tensor"),
    "backends.tensorflow": ("backend_api", "backends.shared", "config", "processes", "tensor"),
    "backends.tensorrt": ("backend_api", "backends.shared", "config", "gpus.pinned", "tensor"),
    "backends.torch": ("backend_api", "backends.shared", "config", "processes", "tensor"),
    "backends.python": (
        *("backend_api", "backends.environments", "backends.shared", "config", "execution.batching"),
        *("execution.worker", "gpus.lost", "processes", "request", "telemetry.metrics", "tensor", "worker"),
    ),
    "backends.environments": ("backends.shared", "execution.worker", "processes"),
    "backends.out_of_process": (
        *("backend_api", "backends.environments", "backends.registry", "backends.shared", "config"),
        *("execution.batching", "execution.instances", "execution.worker", "gpus.lost", "processes", "request"),
        *("tensor", "worker.ipc", "worker.runtime"),
    ),
    "repository.local": ("backends.registry", "config"),
    "repository.remote": ("config", "options", "repository.local", "repository.remote"),
    "repository.remote.stores": ("options",),
    "repository.remote.mlflow": ("options", "repository.remote.stores"),
    "repository.remote.mirror": ("repository.local", "repository.remote.stores"),
    "repository.catalog": ("config", "options", "repository.local", "repository.remote"),
    "repository.changes": (
        *("config", "options", "repository.catalog", "repository.local", "repository.remote.repository"),
    ),
    "repository.agents": ("config", "options", "repository.local", "repository.remote"),
    "lifecycle.state": (
        *("config", "execution.model", "execution.model_directory", "processes", "repository.changes"),
        *("repository.local", "scheduling.ensemble", "telemetry.metrics"),
    ),
    "lifecycle.naming": ("lifecycle.state", "repository.catalog", "repository.local"),
    "lifecycle.memory": ("backend_api", "config", "execution.model", "lifecycle.state", "scheduling.eviction"),
    "lifecycle.traffic": (
        *("config", "execution.instances", "execution.model", "lifecycle.state", "request", "scheduling"),
        *("telemetry.metrics", "tensor"),
    ),
    "lifecycle.loading": (
        *("backend_api", "backends.placement", "backends.registry", "cache", "config", "execution", "gpus"),
        *("lifecycle.memory", "lifecycle.state", "lifecycle.traffic", "processes", "repository", "request"),
        *("scheduling", "telemetry.metrics", "tensor"),
    ),
    "lifecycle.ensembles": (
        *("cache", "config", "execution.ensemble", "execution.model", "execution.model_directory"),
        *("lifecycle.loading", "lifecycle.naming", "lifecycle.state", "repository.local", "scheduling.ensemble"),
        "telemetry.metrics",
    ),
    "lifecycle.tuning": (
        *("config", "execution.model", "lifecycle.state", "options.latency_objective", "scheduling.tuning"),
        "telemetry.metrics",
    ),
    "lifecycle": ("config", "lifecycle", "options", "repository", "telemetry.metrics"),
    "engine": (
        *(
            "config",
            "eventloop",
            "execution.model",
            "execution.model_directory",
            "gpus.lost",
            "lifecycle",
            "repository.local",
            "request",
        ),
        *("scheduling.admission", "shared_memory", "telemetry", "tensor"),
    ),
    "frontends.net": (),
    "frontends.access": ("config.routes", "options", "wire.grpc"),
    "frontends.inference": (
        *("config.spec", "engine", "execution.batching", "execution.model.interface", "lifecycle.memory", "options"),
        *("request", "scheduling", "shared_memory", "telemetry.logs", "tensor", "wire.v2"),
    ),
    "frontends.http.server": (
        *("eventloop", "frontends.access", "frontends.inference", "frontends.net", "options", "request", "scheduling"),
        *("telemetry.logs", "wire.compression", "wire.http1", "worker.ipc.buffer_pool", "worker.ipc.receive_pools"),
    ),
    "frontends.http.json_worker": (
        *("config.spec", "eventloop", "processes", "request", "scheduling", "shared_memory", "tensor"),
        *("wire.json_text", "wire.v2"),
    ),
    "frontends.http.v2": (
        *("config", "engine", "execution.model.interface", "frontends.access", "frontends.http.json_worker"),
        *("frontends.http.server", "frontends.inference", "lifecycle.state", "options", "repository.local", "request"),
        *("scheduling", "shared_memory", "telemetry", "tensor", "wire.http1", "wire.json_text", "wire.v2"),
        "worker.ipc.arena",
    ),
    "frontends.http.cloud": (
        *("engine", "frontends.http.server", "frontends.http.v2", "lifecycle.added_models", "lifecycle.memory"),
        *("lifecycle.state", "wire.http1", "worker.ipc.arena"),
    ),
    "frontends.openai": (
        *("config", "engine", "execution.model.interface", "frontends.http.server", "frontends.inference"),
        *("lifecycle.memory", "options", "repository.local", "request", "scheduling", "telemetry.logs", "wire.http1"),
        *("wire.openai", "wire.v2"),
    ),
    "frontends.grpc.rpc": (
        *("frontends.access", "frontends.inference", "request", "telemetry.logs", "wire.grpc", "wire.v2"),
        "worker.ipc.arena",
    ),
    "frontends.dashboard": (
        *("config", "engine", "execution.model.interface", "explain", "frontends.access", "frontends.http.server"),
        *("frontends.http.v2.load_body", "gpus.usable", "telemetry.metrics", "wire.http1"),
    ),
    "frontends.grpc.server": (
        *("eventloop", "frontends.access", "frontends.grpc.rpc", "frontends.inference", "frontends.net"),
        *("request", "telemetry", "wire.compression", "wire.grpc", "wire.http2", "worker.ipc.buffer_pool"),
        *("worker.ipc.arena", "worker.ipc.receive_pools"),
    ),
    "frontends.grpc.grpcio": (
        *("frontends.access", "frontends.grpc.rpc", "frontends.net", "request", "telemetry.metrics", "wire.grpc"),
    ),
    "frontends.grpc.settings": ("frontends.access", "frontends.grpc", "frontends.net", "options", "telemetry.metrics"),
    "frontends.grpc.v2": (
        *("config", "engine", "execution.model.interface", "frontends.grpc.rpc", "frontends.inference"),
        *("lifecycle.memory", "lifecycle.state", "options", "repository.local", "request", "scheduling"),
        *("shared_memory", "telemetry.logs", "wire.grpc", "wire.proto_fields", "wire.v2", "worker.ipc.arena"),
    ),
    "frontends.metrics": (
        *("config.spec", "engine", "execution.model.interface", "frontends.http.server", "gpus", "lifecycle.memory"),
        *("lifecycle.tuning", "telemetry.metrics", "tensor", "wire.http1"),
    ),
    "server": (
        *("backend_api", "cache", "config", "engine", "execution.model", "frontends", "gpus", "lifecycle"),
        *("options", "processes", "repository", "scheduling", "shared_memory", "telemetry"),
    ),
    # Front-end processes send requests and responses as they are, over the frames and the shared memory of the workers.
    "server.fronts": (
        *("backend_api", "backends.registry", "config", "engine", "eventloop", "execution.batching", "execution.model"),
        *("execution.model_directory", "execution.worker.channel", "frontends", "lifecycle", "options"),
        *("repository.local", "request", "scheduling.admission", "server", "shared_memory", "telemetry", "tensor"),
        *("wire.grpc", "wire.http1", "worker.ipc"),
    ),
    # A server in a thread of a program, and the names under which programs know it.
    "inprocess": (
        *("backend_api", "backends.callable", "binding", "config.export", "engine", "execution.model.interface"),
        *("frontends.inference", "lifecycle", "options", "repository.local", "request", "server", "shared_memory"),
        *("telemetry.logs", "tensor"),
    ),
    "api": ("inprocess", "tensor"),
    # A client of servers elsewhere, which shares the codecs.
    "client": ("config.messages", "shared_memory", "tensor", "wire"),
    # PyTriton's names on a server in a program, and on the clients.
    "pytriton": ("pytriton.decorators", "pytriton.model_config", "pytriton.proxy", "pytriton.serving"),
    "pytriton.model_config": ("config.messages", "pytriton.exceptions", "tensor"),
    "pytriton.decorators": ("pytriton.constants", "pytriton.exceptions", "pytriton.model_config"),
    "pytriton.client": ("client", "pytriton.constants", "pytriton.model_config"),
    "pytriton.serving": (
        *("backend_api", "binding", "client", "config.messages", "config.spec", "pytriton.client"),
        *("pytriton.constants", "pytriton.decorators", "pytriton.exceptions", "pytriton.model_config"),
        *("pytriton.proxy", "request"),
    ),
    "pytriton.triton": ("binding", "inprocess", "pytriton"),
    # A program of its own: a client that shares the server's codecs, and embeds a server for the model's own ceiling.
    "perf": (
        *("options", "perf.input", "perf.load", "perf.measure", "perf.options", "perf.report", "perf.sweep"),
        *("perf.target", "perf.workers", "shared_memory", "tensor", "wire"),
    ),
    "perf.advise": ("config.export", "config.messages", "perf"),
    "perf.sweep": ("perf.options", "perf.settings"),
    "perf.input": ("perf.results", "perf.settings", "perf.steps", "shared_memory", "tensor", "wire"),
    "perf.report": ("perf.histogram", "perf.results", "perf.settings", "processes"),
    "perf.target": (
        *("config.messages", "perf.histogram", "perf.results", "perf.settings", "perf.steps", "perf.transfer"),
        *("perf.target.in_process", "shared_memory", "tensor", "wire"),
    ),
    "perf.target.in_process": (
        *("config.export", "engine", "execution.model.interface", "perf.results", "perf.settings", "perf.steps"),
        *("perf.target", "request", "server.embedded", "shared_memory", "tensor", "wire"),
    ),
    "perf.measure": ("perf.histogram", "perf.results", "perf.settings", "perf.transfer", "wire"),
    "perf.load": (
        *("perf.histogram", "perf.measure", "perf.progress", "perf.results", "perf.settings", "perf.steps"),
        *("perf.target", "perf.transfer", "tensor", "wire"),
    ),
    "perf.workers": (
        *("perf.histogram", "perf.load", "perf.measure", "perf.results", "perf.settings", "perf.steps"),
        *("perf.target", "processes", "shared_memory"),
    ),
    "perf.options": ("options", "perf.load_mode", "perf.settings", "perf.steps"),
    # It measures with perf, and embeds a server as perf does. What searches and ranks knows no server.
    "analyze": (
        *("analyze", "config.export", "config.messages", "config.parsing.suggest", "perf", "processes"),
        "server.embedded",
    ),
    "analyze.rank": ("analyze.measurement", "analyze.settings.goal", "scheduling.tuning"),
    "analyze.search": (
        *("analyze.errors", "analyze.measurement", "analyze.space", "analyze.trial", "scheduling.tuning"),
    ),
    "analyze.settings": (
        *("analyze.errors", "analyze.measurement", "config.messages", "config.parsing.suggest", "perf.options"),
    ),
    "analyze.space": ("analyze.errors", "analyze.settings", "analyze.trial", "perf.target.model_text"),
    # A program of its own, which measures what it made with the load generator.
    # It compiles as the server does, into the same cache.
    "convert": (
        *("backends.torch.compile_cache", "backends.torch.compile_main"),
        *("config.export", "config.messages", "perf", "processes"),
    ),
    "navigator": ("config.export", "config.messages", "convert", "pytriton.exceptions", "pytriton.model_config"),
    # It writes files, and knows the server through their formats alone.
    "quickstart": (),
    "cli": (
        *(
            "backend_api",
            "client",
            "config",
            "convert",
            "engine",
            "execution.worker.process",
            "explain",
            "gpus",
            "lifecycle",
            "processes.openblas",
        ),
        *("analyze", "options", "perf", "quickstart"),
        *("repository", "scheduling.ensemble", "server", "telemetry.logs", "tensor.dtypes"),
    ),
    "explain": ("config",),
    "testing": ("inprocess",),
    "__main__": ("cli",),
}


def inner(module: str) -> str:
    """The name below the package root."""
    return module.removeprefix(PACKAGE + ".")


def is_within(module: str, package: str) -> bool:
    """Whether a name below the root is the package or inside it."""
    return module == package or module.startswith(package + ".")


def rule_of(module: str) -> str:
    """The key of ``ALLOWED`` that counts for a name below the root; "" for none."""
    return max((key for key in ALLOWED if is_within(module, key)), key=len, default="")


def is_allowed(importer: str, target: str) -> bool:
    """Whether a module may import another; both are names below the root."""
    rule = rule_of(importer)
    if rule and rule_of(target) == rule:
        return True
    return any(is_within(target, package) for package in (*GROUND, *ALLOWED.get(rule, ())))


def internal() -> list[Import]:
    """Every import between modules of the package. The root, which looks names up when they are asked for, is apart."""
    return [i for i in imports() if is_internal(i.target) and PACKAGE not in (i.importer, i.target)]


def test_every_package_has_a_rule() -> None:
    without = [
        m for m in modules() if m != PACKAGE and inner(m) not in GROUND and not rule_of(inner(m)) and has_code(m)
    ]
    assert without == []


def has_code(module: str) -> bool:
    """Whether a module has more than a docstring."""
    return len(tree(module).body) > (ast.get_docstring(tree(module)) is not None)


@pytest.mark.slow
def test_packages_import_what_they_may() -> None:
    assert [str(i) for i in internal() if not is_allowed(inner(i.importer), inner(i.target))] == []


@pytest.mark.parametrize(
    ("importer", "target", "expected"),
    [
        ("wire.http2.frames", "errors", True),
        ("wire.http2.frames", "wire.http2.stream", True),
        ("wire.http2.frames", "wire.grpc.status", False),
        ("wire.grpc.status", "wire.http2.frames", True),
        ("backends.onnx.session", "backends.torch.session", False),
        ("execution.sequence.model", "execution.ensemble.model", False),
        ("frontends.grpc.v2.infer", "execution.model.loaded_model", False),
    ],
)
def test_the_rules(importer: str, target: str, expected: bool) -> None:
    assert is_allowed(importer, target) is expected


def module_of(target: str) -> str:
    """The module that a target lies in: a target may also be a name of it."""
    return target if target in modules() else target.rpartition(".")[0]


def package_of(module: str) -> str:
    """The folder of a module. A module beside folders stands for itself: it may be above some and below others."""
    folder = inner(module) if modules()[module].name == "__init__.py" else inner(module).rpartition(".")[0]
    has_folders = any(
        is_within(inner(other), folder) and inner(other).count(".") > folder.count(".") + 1 for other in modules()
    )
    return inner(module) if has_folders or not folder else folder


def edges(name: str) -> dict[str, set[str]]:
    """The graph of imports of all kinds, of modules or of packages."""
    node = {m: package_of(m) if name == "packages" else m for m in modules()}
    graph: dict[str, set[str]] = defaultdict(set)
    for i in internal():
        importer, target = node[i.importer], node[module_of(i.target)]
        if importer != target:
            graph[importer].add(target)
    return graph


@pytest.mark.parametrize("name", ["modules", "packages"])
def test_no_import_cycles_of_any_kind(name: str) -> None:
    assert cycles(edges(name)) == []


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The nodes that lead to themselves, in groups that lead to each other."""
    reached = {node: _reached(graph, graph[node]) for node in list(graph)}
    groups = {frozenset(m for m in reached[n] if n in reached.get(m, ())) for n in reached if n in reached[n]}
    return sorted(sorted(group) for group in groups)


def _reached(graph: dict[str, set[str]], begin: Iterable[str]) -> set[str]:
    found: set[str] = set()
    todo = list(begin)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += graph.get(node, ())
    return found


def test_cycles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert cycles(graph) == [["b", "c"]]
    assert cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_folders_are_not_too_full() -> None:
    counts = Counter(path.parent for path in modules().values() if path.name != "__init__.py")
    assert {str(folder): count for folder, count in counts.items() if count > MAX_FILES} == {}


@pytest.mark.slow
def test_class_names_are_unique() -> None:
    """The names of ``naiad.pytriton`` are PyTriton's, and stand in its own modules."""
    where: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        if module.startswith("naiad.pytriton."):
            continue
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ClassDef):
                where[node.name].append(module)
    assert {name: found for name, found in where.items() if len(found) > 1} == {}
