"""What a measurement depends on of the code, as a hash: when it changes, what was measured before no longer counts."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch

PACKAGE = "clearhead.claims"
ONLY_TOLD = {f"{PACKAGE}.{name}" for name in ("claim", "figures")}
"""Modules that no number comes from."""


@cache
def code_of(module: str) -> str:
    """The hash of a module of claims with all that it imports from there, of the library's version and of torch's.

    Comments, texts, marks and the drawing do not count, so that a word can be changed without measuring again.
    """
    parts = [f"{version('clearhead')} {torch.__version__}"]
    parts += [ast.dump(_Measured().visit(_tree(name))) for name in sorted(_needed(module))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _needed(module: str) -> set[str]:
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found | ONLY_TOLD:
            found.add(name)
            waiting += [other for other in _imports(_tree(name)) if _file(other) is not None]
    return found


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # What is named may be a module or something in one.
            yield from (f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names))


def _file(module: str) -> Path | None:
    if not module.startswith(f"{PACKAGE}."):
        return None
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)


def _tree(module: str) -> ast.Module:
    file = _file(module)
    assert file is not None, module
    return ast.parse(file.read_bytes())


class _Measured(ast.NodeTransformer):
    """Leaves of a module what numbers come from."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        told = {word.arg: word.value for part in node.body if (call := _claim(part)) for word in call.keywords}
        drawing = ast.unparse(told["draw"]) if "draw" in told else ""
        body = [part for part in node.body if not _claim(part) and getattr(part, "name", None) != drawing]
        return self.generic_visit(ast.Module([*body, *(ast.Expr(told[key]) for key in told if key == "measure")], []))

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)


def _claim(node: ast.stmt) -> ast.Call | None:
    """The right side of `CLAIM = Claim(...)`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return None
    return node.value if any(isinstance(name, ast.Name) and name.id == "CLAIM" for name in node.targets) else None
