"""A catalogue of small claims, so that what measures claims is tested by itself, also as a program of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent

import pytest

import clearhead.claims
from clearhead.claims import catalogue, index, report
from clearhead.claims.code import code_of
from clearhead.cli import main


def hears_ctrl_c() -> None:
    """A program started in the background by a shell ignores Ctrl-C, and hands that on to those it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


HEAD = """
    import os, time
    from pathlib import Path

    import clearhead.claims.fakes.helper as helper
    from clearhead.claims import figures
    from clearhead.claims.claim import Claim, Cost, Mark, Measured, Source

    FOLDER = Path(__file__).parents[1]

    def note(what):
        with open(FOLDER / "notes", "a") as file:
            file.write(what + "\\n")

    def draw(results):
        figure, (axes,) = figures.panels()
        axes.plot([result.values["size"] for result in results])
        return figure

    def measure(run):
        note(f"{Path(__file__).stem} {run.seed}")
"""
TAIL = """
    CLAIM = Claim(
        says="This is {name}. It is short.",
        source=Source(statements=(1, 2), paper="None"),
        how="It is made up.",
        marks=(Mark(of="size", low={low}, why="It is made up too."),),
        measure=measure,
        draw=draw,
        seeds={seeds},
        cost=Cost(minutes=0.01, {cost}),
    )
"""


@dataclass(frozen=True)
class Fakes:
    """Claims in a folder."""

    folder: Path

    def write(self, name: str, measure: str = "", *, low: float = 0.5, seeds: int = 1, cost: str = "") -> None:
        """A claim of that name. measure: what its `measure(run)` does; when it gives nothing, the size is 1."""
        body = dedent(measure) + "\nreturn Measured(values={'size': 1.0 + run.seed / 100})\n"
        tail = dedent(TAIL).format(name=name, low=low, seeds=seeds, cost=cost)
        package = self.folder / "fakes"
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
        if not (package / "helper.py").exists():
            self.helper("1.0")
        (package / f"{name}.py").write_text(dedent(HEAD) + indent(body, "    ") + tail)

    def change(self, name: str, old: str, new: str) -> None:
        """Other words in a claim's file."""
        file = self.folder / "fakes" / f"{name}.py"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def helper(self, number: str) -> None:
        """What claims import beside themselves."""
        (self.folder / "fakes" / "helper.py").write_text(f"NUMBER = {number}\n")

    def names(self) -> tuple[str, ...]:
        files = (self.folder / "fakes").glob("*.py")
        return tuple(sorted(file.stem for file in files if file.stem not in ("__init__", "helper")))

    def notes(self) -> list[str]:
        """What was noted since the last call: what was measured, name and seed."""
        file = self.folder / "notes"
        found = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return found

    def here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put them in the place of the catalogue's, in this process, as they are now."""
        for module in [name for name in sys.modules if name.startswith("clearhead.claims.fakes")]:
            del sys.modules[module]
        vars(clearhead.claims).pop("fakes", None)
        code_of.cache_clear()
        monkeypatch.setattr(clearhead.claims, "__path__", [*clearhead.claims.__path__, str(self.folder)])
        for module in (catalogue, index):
            monkeypatch.setattr(module, "CHAPTERS", {"fakes": self.names()})
        for module in (catalogue, report, index):
            monkeypatch.setattr(module, "TITLES", {"fakes": "Fakes"})
        monkeypatch.setattr(sys, "dont_write_bytecode", True)  # files change within a second

    def main(self, monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
        """The exit code of `clearhead claim ...` in this process."""
        with monkeypatch.context() as patch:
            self.here(patch)
            patch.chdir(self.folder)
            return main(["claim", *args])

    def start(self, *args: str) -> subprocess.Popen[str]:
        """`clearhead claim ...` as a program; peft is not installed, as far as it can see."""
        # Python runs this file when it starts, in each process of the program.
        (self.folder / "sitecustomize.py").write_text(
            "import sys\n"
            "sys.modules['peft'] = None\n"
            "import clearhead.claims\n"
            f"clearhead.claims.__path__.append({str(self.folder)!r})\n"
            "from clearhead.claims import catalogue\n"
            f"catalogue.CHAPTERS = {{'fakes': {self.names()!r}}}\n"
            "catalogue.TITLES = {'fakes': 'Fakes'}\n"
        )
        paths = os.pathsep.join([str(self.folder), str(Path(clearhead.__file__).parents[1])])
        return subprocess.Popen(
            [sys.executable, "-m", "clearhead", "claim", *args],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=hears_ctrl_c,
        )

    def run(self, *args: str) -> tuple[int, str, str]:
        """The exit code, and what was printed on standard output and error."""
        with self.start(*args) as program:
            out, err = program.communicate(timeout=240)
            return program.returncode, out, err
