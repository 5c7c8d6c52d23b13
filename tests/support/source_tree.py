"""The project's source as a graph of modules and imports, read with ``ast`` and never executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
PACKAGE = "naiad"


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement: ``target`` is a full module name, ``kind`` is "module", "function" or "typing"."""

    importer: str
    target: str
    line: int
    kind: str

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its full name."""
    return {_module_name(path): path for path in sorted((SRC / PACKAGE).rglob("*.py"))}


@cache
def tree(module: str) -> ast.Module:
    """The parsed source of a module."""
    return ast.parse(modules()[module].read_text(encoding="utf-8"))


@cache
def imports() -> tuple[Import, ...]:
    """Every import statement of the package, those in functions and under TYPE_CHECKING included."""
    return tuple(i for module in modules() for i in _imports_of(module))


def is_internal(target: str) -> bool:
    """Whether the module belongs to the package."""
    return target == PACKAGE or target.startswith(PACKAGE + ".")


def _module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports_of(module: str) -> Iterator[Import]:
    for node, kind in _walk(tree(module), "module"):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, kind)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            for alias in node.names:
                yield Import(module, _submodule_or_base(base, alias.name), node.lineno, kind)


def _walk(node: ast.AST, kind: str) -> Iterator[tuple[ast.AST, str]]:
    for child in ast.iter_child_nodes(node):
        yield child, kind
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for statement in child.body:
                yield statement, "typing"
                yield from _walk(statement, "typing")
            for statement in child.orelse:
                yield statement, kind
                yield from _walk(statement, kind)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _walk(child, "function" if kind == "module" else kind)
        else:
            yield from _walk(child, kind)


def _absolute(module: str, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    package = module.split(".")
    if modules()[module].name != "__init__.py":
        package = package[:-1]
    base = package[: len(package) - (node.level - 1)]
    return ".".join([*base, node.module] if node.module else base)


def _submodule_or_base(base: str, name: str) -> str:
    return f"{base}.{name}" if f"{base}.{name}" in modules() else base
