"""The Studio's pages are built while the package is: with this machine's Node or a wheel's, and never in the way."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hook() -> Any:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project with pages to build."""
    (tmp_path / "frontend").mkdir()
    (tmp_path / "frontend" / "package-lock.json").write_text("{}")
    (tmp_path / "clearhead" / "studio").mkdir(parents=True)
    return tmp_path


def at_work(hook: Any, tree: Path, target: str = "wheel") -> Any:
    """The hook as hatchling makes it, and the warnings it gives."""
    said: list[str] = []
    app = SimpleNamespace(display_warning=said.append)
    made = hook.Frontend(str(tree), {}, None, SimpleNamespace(), str(tree), target, app)
    made.said = said
    return made


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, *, node: str, npm: str) -> None:
    """Put a node and an npm, which are shell scripts, in the place of all programs but the shell's own."""
    folder.mkdir()
    for name, script in {"node": node, "npm": npm}.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")


def test_a_machine_with_a_new_enough_node_needs_no_other(hook, tree, tmp_path, monkeypatch) -> None:
    programs(tmp_path / "bin", monkeypatch, node="echo v22.14.0", npm="true")
    assert at_work(hook, tree).dependencies() == []


@pytest.mark.parametrize("version", ["v18.20.0", "v20.18.9", "v21.7.0", "v22.11.0", "what?"])
def test_an_old_node_is_left_alone(hook, tree, tmp_path, monkeypatch, version) -> None:
    programs(tmp_path / "bin", monkeypatch, node=f"echo '{version}'", npm="true")
    assert at_work(hook, tree).dependencies() == [hook.NODE_WHEEL]


def test_without_node_the_build_asks_for_one(hook, tree, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert at_work(hook, tree).dependencies() == [hook.NODE_WHEEL]


def test_sources_are_packed_as_they_are(hook, tree, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert at_work(hook, tree, "sdist").dependencies() == []


def test_the_pages_can_be_left_out(hook, tree, monkeypatch) -> None:
    monkeypatch.setenv("CLEARHEAD_SKIP_FRONTEND", "1")
    made = at_work(hook, tree)
    assert made.dependencies() == []
    made.initialize("standard", {})
    assert not (tree / hook.BUILT[0]).exists()


BUILDS = "\n".join(
    f"mkdir -p ../{folder} && echo page > ../{folder}/index.html"
    for folder in ("clearhead/studio/static", "clearhead/studio/widget")
)


def test_pages_are_built_once_for_the_same_sources(hook, tree, tmp_path, monkeypatch) -> None:
    log = tmp_path / "log"
    programs(tmp_path / "bin", monkeypatch, node="echo v20.20.2", npm=f'echo "$@" >> {log}\n{BUILDS}')
    at_work(hook, tree).initialize("editable", {})
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["ci", "run"]
    assert "--ignore-scripts" in log.read_text()
    at_work(hook, tree).initialize("editable", {})
    assert len(log.read_text().splitlines()) == 2
    (tree / "frontend" / "App.svelte").write_text("<h1>new</h1>")
    at_work(hook, tree).initialize("editable", {})
    assert len(log.read_text().splitlines()) == 4


def test_what_npm_fetched_is_no_source(hook, tree) -> None:
    before = hook.fingerprint(tree / "frontend")
    (tree / "frontend" / "node_modules" / "svelte").mkdir(parents=True)
    (tree / "frontend" / "node_modules" / "svelte" / "index.js").write_text("export {}")
    assert hook.fingerprint(tree / "frontend") == before


def test_where_npm_reaches_nothing_the_install_goes_on(hook, tree, tmp_path, monkeypatch) -> None:
    programs(tmp_path / "bin", monkeypatch, node="echo v20.20.2", npm=f"{BUILDS}\nexit 1")
    made = at_work(hook, tree)
    made.initialize("standard", {})
    assert "were not built" in made.said[0] and "npm registry" in made.said[0]
    for folder in hook.BUILT:
        assert not (tree / folder).exists(), "half-built pages are left"


@pytest.mark.slow
def test_a_wheel_is_built_on_a_machine_without_node(tmp_path) -> None:
    """As a new user's pip does it, with the sources of this tree; needs the package registries."""
    sources = tmp_path / "sources"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/")):
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, sources / name)
    # Programs of the system but no Node.
    programs_without = tmp_path / "bin"
    programs_without.mkdir()
    for name in ("sh", "env", "uname", "git"):
        found = shutil.which(name)
        assert found is not None
        (programs_without / name).symlink_to(found)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path / "wheels", sources],
        env={**os.environ, "PATH": str(programs_without)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "clearhead/studio/static/index.html" in names
    assert any(name.startswith("clearhead/studio/widget/") and name.endswith(".js") for name in names)
    assert not any("node_modules" in name for name in names)
