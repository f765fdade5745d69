"""A package imports only what stands to its left in one order, and `import clearhead` imports nothing heavy."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clearhead"

# fmt: off
ORDER = [
    "errors", "files", "progress", "native", "ops", "config", "taps", "layer_state", "state", "forward", "nn", "model",
    "families", "inputs", "checkpoints", "costs", "generation", "lens", "recurrent", "training", "claims", "serving",
    "studio", "cli",
]
# fmt: on
OPS_MAY_IMPORT = {"torch", "jaxtyping", "clearhead"}
EXISTING = [name for name in ORDER if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()]


def files_of(name: str) -> list[Path]:
    folder = PACKAGE / name
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{name}.py"]


def imports(tree: ast.AST) -> Iterator[str]:
    """Full names of all that is imported at run time, inside functions too; `if TYPE_CHECKING:` is passed over."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for other in node.orelse:
                yield from imports(other)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the whole name, not a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from imports(node)


def part_of(name: str) -> str | None:
    """The package or ground module that a full name belongs to; None when it is not clearhead's, "" for its root."""
    first, *rest = name.split(".")
    if first != "clearhead":
        return None
    return rest[0] if rest and rest[0] in ORDER else ""


def test_everything_stands_somewhere_in_the_order() -> None:
    found = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    assert found - set(ORDER) == {"__init__", "__main__"}


@pytest.mark.parametrize("name", EXISTING)
def test_imports_point_left(name: str) -> None:
    wrong = []
    for path in files_of(name):
        for imported in imports(ast.parse(path.read_text())):
            part = part_of(imported)
            # The root's lazy names lead anywhere, so only the last floor may use them.
            if part is not None and (ORDER.index(part) if part else len(ORDER) - 1) > ORDER.index(name):
                wrong.append(f"{path.relative_to(ROOT)} imports {imported}")
    assert not wrong


def test_ops_import_only_torch() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {imported}"
        for path in files_of("ops")
        for imported in imports(ast.parse(path.read_text()))
        if imported.split(".")[0] not in OPS_MAY_IMPORT | sys.stdlib_module_names
    ]
    assert not wrong


ALONE = """
import importlib, json, os, sys
import huggingface_hub, jinja2, numpy, rich, safetensors, tokenizers, torch, tyro  # once, for all the children

loaded = {}
for name, modules in json.loads(sys.argv[1]).items():
    out, into = os.pipe()
    if (child := os.fork()) == 0:
        for module in modules:
            importlib.import_module(module)
        os.write(into, json.dumps([m for m in sys.modules if m.startswith("clearhead.")]).encode())
        os._exit(0)
    os.close(into)
    with open(out) as answer:
        text = answer.read()
    assert os.waitpid(child, 0)[1] == 0 and text, f"{name} can't be imported by itself"
    loaded[name] = json.loads(text)
print(json.dumps(loaded))
"""


def test_each_package_is_imported_alone() -> None:
    """In an interpreter that has imported nothing else of clearhead: a circle of imports shows only there."""
    modules = {
        name: [
            ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files_of(name)
        ]
        for name in EXISTING
    }
    run = subprocess.run(
        [sys.executable, "-c", ALONE, json.dumps(modules)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    for name, loaded in json.loads(run.stdout).items():
        right = {part_of(module) for module in loaded} & set(ORDER[ORDER.index(name) + 1 :])
        assert not right, f"importing {name} alone brings {right}"


def test_importing_clearhead_imports_nothing_heavy() -> None:
    code = "import sys; before = set(sys.modules); import clearhead; print(*sorted(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    new = {name.split(".")[0] for name in run.stdout.split()}
    assert new - sys.stdlib_module_names == {"clearhead"}
