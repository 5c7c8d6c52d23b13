"""The walls of the house: what may import what, and what a file may look like (docs/architecture.md gives reasons)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from support.source_tree import PACKAGE, ROOT, Import, imports, is_internal, modules, tree

# Lowest first. A module may import from its own layer and from those below it.
LAYERS = (
    ("worker",),
    (
        "version",
        "errors",
        "bounded_dict",
        "extras",
        "spelling",
        "clock",
        "cache_folder",
        "folder_lease",
        "eventloop",
        "processes",
        "options",
        "tensor",
        "gpus",
        "shared_memory",
        "request",
        "python_backend",
    ),
    ("config",),
    ("binding",),
    ("explain",),
    ("wire",),
    ("telemetry",),
    ("scheduling",),
    ("cache",),
    ("backend_api",),
    ("execution",),
    ("backends",),
    ("repository",),
    ("lifecycle",),
    ("engine",),
    ("frontends",),
    ("server",),
    ("inprocess",),
    ("api",),
    ("client",),
    ("pytriton",),
    ("perf",),
    ("analyze",),
    ("convert",),
    ("navigator",),
    ("quickstart",),
    ("cli",),
    ("__main__",),
    ("testing",),
)
# The field's noun comes first, not what another thing is like.
RIDDLE = re.compile(r"As ``|What (is|are) ")
HEIGHTS = {name: height for height, names in enumerate(LAYERS) for name in names}
# The package root re-exports the public names, each only when it is asked for.
ROOT_MODULE = PACKAGE

# asyncio itself is no entry: loops and timers are used from execution/ upwards. Its network side is NETWORK_CALLS.
NETWORK = ("uvloop", "httptools", "socket", "socketserver", "ssl", "http", "urllib", "redis")
MAY_USE_NETWORK = {
    "uvloop": ("frontends", "server", "cli"),
    # Processes of models are talked to over pairs of local sockets.
    "socket": (
        "frontends",
        "server",
        "cli",
        "worker",
        "execution",
        "backends.out_of_process",
        "testing",
        "perf",
        "client",
        # It finds free ports for the server that it starts.
        "analyze.measure.local",
    ),
    "ssl": ("frontends", "server", "cli", "perf", "client", "repository.remote.stores.web"),
    "httptools": ("wire.http1.head", "frontends"),
    # Loading threads fetch what lies elsewhere; names in paths are decoded.
    "urllib": (
        "repository.remote",
        "cli.explain",
        "perf.target",
        "client",
        "pytriton.client.url",
        "frontends.openai.application",
    ),
    "http": ("repository.remote.stores.web",),
    # Answers are kept there by threads of its own.
    "redis": ("cache.redis",),
}
NETWORK_CALLS = re.compile(
    r"open_connection|open_unix_connection|start_server|start_unix_server|StreamReader|StreamWriter|BufferedProtocol"
    r"|DatagramProtocol|create_server|create_unix_server|create_connection|create_datagram_endpoint|sock_[a-z_]+"
)
FRAMEWORKS = ("onnxruntime", "onnx", "torch", "tensorflow", "openvino", "tensorrt", "tritonclient", "grpc")
FRAMEWORKS += ("treelite", "xgboost", "lightgbm", "sklearn", "skops", "joblib", "keras")
# Modules that have their names from PyTriton.
OTHERS_NAMES = ("naiad.pytriton.client.utils", "naiad.pytriton.model_config.common")
VAGUE_NAMES = ("utils", "util", "helpers", "helper", "common", "misc", "core")
LARGE_FILE_LINES = 600


def layer_of(module: str) -> int:
    """The height of a module; the root of the package counts as the lowest."""
    if module == ROOT_MODULE:
        return 0
    inner = module.removeprefix(PACKAGE + ".")
    height = HEIGHTS.get(inner, HEIGHTS.get(inner.split(".")[0]))
    if height is None:
        raise LookupError(f"{module} belongs to no layer: place it in LAYERS and in docs/architecture.md")
    return height


def internal_imports() -> Iterator[Import]:
    return (i for i in imports() if is_internal(i.target))


def test_every_module_has_a_layer() -> None:
    for module in modules():
        layer_of(module)


def test_imports_lead_down_only() -> None:
    upward = [
        str(i)
        for i in internal_imports()
        if i.importer != ROOT_MODULE and i.target != ROOT_MODULE and layer_of(i.target) > layer_of(i.importer)
    ]
    assert upward == []


def test_no_module_imports_the_package_root() -> None:
    """The root looks up into the layers, so only what stands above them all may lean on it."""
    through_root = [str(i) for i in internal_imports() if i.target == ROOT_MODULE and i.kind != "typing"]
    assert through_root == []


def test_network_libraries_stay_in_the_frontends() -> None:
    found = [str(i) for i in imports() if i.kind != "typing" and not may_import(i)]
    assert found == []


def may_import(i: Import) -> bool:
    """Whether the importer may name the library, as far as it is one for networks."""
    library = i.target.split(".")[0]
    if library not in NETWORK:
        return True
    place = i.importer.removeprefix(PACKAGE + ".")
    return any(place == allowed or place.startswith(allowed + ".") for allowed in MAY_USE_NETWORK.get(library, ()))


def test_asyncio_has_no_network_side_below_the_frontends() -> None:
    calls = [
        f"{module}:{node.lineno} uses {node.attr}"
        for module in modules()
        if layer_of(module) < HEIGHTS["frontends"]
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Attribute) and NETWORK_CALLS.fullmatch(node.attr)
    ]
    assert calls == []


def test_frameworks_are_imported_when_used() -> None:
    early = [str(i) for i in imports() if i.kind == "module" and i.target.split(".")[0] in FRAMEWORKS]
    assert early == []


def test_no_vague_module_names() -> None:
    own = [m for m in modules() if m not in OTHERS_NAMES]
    vague = [m for m in own if any(part.strip("_") in VAGUE_NAMES for part in m.split("."))]
    assert vague == []


def large_files_with_a_reason() -> set[str]:
    """The paths in the table "Large files" of the architecture page."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("## Large files", 1)[1].split("\n## ", 1)[0]
    return set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


def test_large_files_have_a_reason() -> None:
    lengths = {str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in modules().values()}
    large = {path for path, lines in lengths.items() if lines > LARGE_FILE_LINES}
    reasoned = large_files_with_a_reason()
    assert large - reasoned == set(), f"more than {LARGE_FILE_LINES} lines: split it, or give the reason in the table"
    assert reasoned - large == set(), "these have shrunk: take them out of the table"


def test_public_names_have_docstrings() -> None:
    public = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    bare = [
        f"{module}:{node.lineno} {node.name}"
        for module in sorted(modules())
        for node in tree(module).body
        if isinstance(node, public) and not node.name.startswith("_") and ast.get_docstring(node) is None
    ]
    assert bare == []


def test_docstrings_begin_with_their_subject() -> None:
    texts = (
        (f"{module}:{node.lineno}", node.value.value)
        for module in sorted(modules())
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )
    assert [f"{place}: {text[:60]}" for place, text in texts if isinstance(text, str) and RIDDLE.match(text)] == []


def test_modules_have_docstrings() -> None:
    assert [module for module in sorted(modules()) if tree(module).body and not ast.get_docstring(tree(module))] == []
