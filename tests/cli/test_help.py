"""Help costs nothing: what may not be imported is what is tested, not the time, which the imports decide."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clearhead.cli import VERBS, main

RECORDED = Path(__file__).with_name("flags.txt")

MODULES_AFTER = """
import contextlib, io, json, sys
before = set(sys.modules)
from clearhead.cli import main
text = io.StringIO()
with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
    main(json.loads(sys.argv[1]))
print(json.dumps([sorted({m.split(".")[0] for m in set(sys.modules) - before}), text.getvalue()]))
"""


def run_help(*args: str) -> tuple[set[str], str]:
    """The packages beyond the standard library that a command imports, and what it prints."""
    run = subprocess.run(
        [sys.executable, "-c", MODULES_AFTER, json.dumps(args)], capture_output=True, text=True, check=True
    )
    modules, text = json.loads(run.stdout)
    return set(modules) - sys.stdlib_module_names, text


def test_help_imports_nothing_beyond_the_standard_library() -> None:
    modules, text = run_help("--help")
    assert modules == {"clearhead"}
    assert all(f"  {verb} " in text for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_imports_tyro_and_little_else(verb: str) -> None:
    modules, text = run_help(verb, "--help")
    assert f"usage: clearhead {verb}" in text
    assert modules <= {"clearhead", "tyro", "docstring_parser", "typing_extensions", "_distutils_hack", "shtab"}


def flags_in(text: str) -> list[str]:
    """The names a verb takes, from its help: what stands in the usage line, then the flags in order."""
    usage = text.splitlines()[0].split()
    flags = {flag for line in text.splitlines()[1:] for flag in re.findall(r"^\W*?(--[a-z][a-z-]*)", line)}
    return [word for word in usage if re.fullmatch("[A-Z]+", word)] + sorted(flags)


def test_the_flags_are_the_recorded_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """A flag is a promise: one that goes or is renamed breaks somebody's script. Change flags.txt knowingly."""
    lines = []
    for verb in VERBS:
        with pytest.raises(SystemExit) as ended:
            main([verb, "--help"])
        assert ended.value.code == 0
        lines.append(" ".join([verb, *flags_in(capsys.readouterr().out)]))
    assert lines == RECORDED.read_text().splitlines(), "now:\n" + "\n".join(lines)


@pytest.mark.parametrize("args", [[], ["-h"], ["help"]])
def test_other_ways_to_ask_for_help(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 0
    assert "usage: clearhead VERB" in capsys.readouterr().out


def test_python_m_is_the_same_program() -> None:
    run = subprocess.run([sys.executable, "-m", "clearhead", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == "clearhead 0.1.0\n"
