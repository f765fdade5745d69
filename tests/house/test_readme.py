"""The README is run: its commands do what they say, and its Python works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
COMMANDS = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines() if line]
RUNNABLE = [command for command in COMMANDS if "clearhead " in command]
SHOWN = {
    text.strip(): answer
    for (kind, text), (next_kind, answer) in pairwise(BLOCKS)
    if (kind, next_kind) == ("sh", "text")
}


def run(command: list[str], folder: Path) -> str:
    """What a command prints, in a folder of its own, with this environment's programs first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_command_is_accounted_for() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for command in COMMANDS:
        kind, *words = command.split()
        if kind == "make":
            assert words[0] in targets
        elif kind == "pip":
            assert command.startswith("pip install -c constraints.txt -e")
        else:
            assert command in RUNNABLE
    assert COMMANDS[:2] == ["make studio", "make test"]
    assert len(RUNNABLE) >= 5
    assert SHOWN


@pytest.mark.slow
@pytest.mark.parametrize("command", RUNNABLE)
def test_a_command_runs(command: str, tmp_path: Path) -> None:
    printed = run(["bash", "-o", "pipefail", "-c", command], tmp_path)
    assert printed.strip()
    if command in SHOWN:
        assert printed == SHOWN[command]


@pytest.mark.slow
def test_the_python_runs(tmp_path: Path) -> None:
    code = "\n".join(text for kind, text in BLOCKS if kind == "python")  # later ones go on with its model
    printed = run([sys.executable, "-c", code], tmp_path)
    assert " are the same as the keys to the door." in printed
    assert (tmp_path / "gemma" / "model.safetensors").exists()


def test_gemmas_terms_stand_beside_the_command_that_installs_it() -> None:
    after = README[README.index('-e ".[gemma]"') :]
    assert "terms of use" in after[:400]
    assert "GEMMA_TERMS.html" in after[:800]


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
