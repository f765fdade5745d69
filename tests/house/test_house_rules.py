"""Rules that keep the code in one style: small records, families named in one place, reasons given, no hosts named."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import clearhead

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clearhead"
MOST_FIELDS = 8
MAY_NAME_FAMILIES = {"families", "assets", "claims", "recipes"}


def python_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def project_files() -> list[Path]:
    """What is in the repository; outside a git clone, what a source distribution holds."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    return [path for folder in ("clearhead", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.*")]


def dataclasses_in(tree: ast.AST) -> Iterator[ast.ClassDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            makers = [ast.unparse(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]
            if {"dataclass", "dataclasses.dataclass", "record"} & set(makers):
                yield node


def test_a_record_has_at_most_eight_fields() -> None:
    """A ninth is a sign that a part wants a record of its own."""
    seen, wrong = 0, []
    for path in python_files(PACKAGE):
        for node in dataclasses_in(ast.parse(path.read_text())):
            seen += 1
            fields = [n for n in node.body if isinstance(n, ast.AnnAssign) and "ClassVar" not in ast.dump(n.annotation)]
            if len(fields) > MOST_FIELDS:
                wrong.append(f"{path.relative_to(ROOT)}: {node.name} has {len(fields)}")
    assert seen > 20
    assert not wrong


def test_only_families_name_families() -> None:
    """No code below or beside `families/` may ask for a model's name: what differs is in the config."""
    from clearhead.families import FAMILIES

    names = set(FAMILIES)
    assert names
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} says {node.value!r}"
        for path in python_files(PACKAGE)
        if not MAY_NAME_FAMILIES & set(path.relative_to(PACKAGE).parts)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert not wrong


def skips_in(tree: ast.AST) -> Iterator[tuple[int, bool]]:
    """The line of every skip and expected failure, and whether it comes with a reason."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name, reason = ast.unparse(node.func), any(keyword.arg == "reason" for keyword in node.keywords)
            if name in ("pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail", "pytest.importorskip"):
                yield node.lineno, reason
            elif name in ("pytest.skip", "pytest.xfail"):
                yield node.lineno, reason or bool(node.args)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bare = {ast.unparse(decorator) for decorator in node.decorator_list}
            if bare & {"pytest.mark.skip", "pytest.mark.xfail"}:
                yield node.lineno, False


def test_no_test_is_skipped_without_a_reason() -> None:
    example = "@pytest.mark.skip\ndef f(): pytest.skip('why')\npytest.importorskip('x')"
    assert sorted(skips_in(ast.parse(example))) == [(2, False), (2, True), (3, False)]
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in python_files(ROOT / "tests")
        for line, reason in skips_in(ast.parse(path.read_text()))
        if not reason
    ]
    assert not wrong


def test_no_file_names_a_registry() -> None:
    """Where packages come from is the business of whoever installs them."""
    hosts = [
        ".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("debian", "org"))
    ]
    flags = ["--" + "index-url", "--extra-" + "index-url"]
    wrong = []
    for path in project_files():
        text = path.read_text(errors="ignore").lower()
        wrong += [f"{path.relative_to(ROOT)} names {word}" for word in hosts + flags if word in text]
    assert not wrong


def test_every_install_command_uses_the_pins() -> None:
    wrong = []
    for path in project_files():
        if path.suffix in (".md", ".yaml", ".toml") or path.name in ("Makefile", "run"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if "pip install" in line and "-c constraints.txt" not in line:
                    wrong.append(f"{path.relative_to(ROOT)}:{number} {line.strip()}")
    assert not wrong


def test_the_version_is_said_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == clearhead.__version__


def test_every_dependency_is_pinned() -> None:
    """What was tested is written down: each direct dependency has its version in constraints.txt."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    names = {d.split(">")[0].split("=")[0].split("[")[0].lower().replace("_", "-") for d in wanted}
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()}
    assert not names - pinned
