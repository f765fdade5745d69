"""Every way a command ends: exit codes, one clear line, never a traceback for what is not a defect."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

import clearhead
from clearhead.cli import main
from clearhead.errors import ClearheadError, UsageError


def raising(error: BaseException) -> SimpleNamespace:
    def run(*args: object, **kwargs: object) -> None:
        raise error

    return SimpleNamespace(run=run)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ClearheadError("config.json has no d_model"), 1, "clearhead: error: config.json has no d_model\n"),
        (UsageError("top_k is -1"), 2, "clearhead: error: top_k is -1\n"),
        (PermissionError(13, "Permission denied", "/x/y"), 1, "clearhead: error: /x/y: Permission denied\n"),
        (KeyboardInterrupt(), 130, "\n"),
    ],
)
def test_exit_codes(
    error: BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(vars(clearhead), "load", raising(error).run)
    assert main(["generate", "model", "text"]) == code
    assert capsys.readouterr().err == line


def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(clearhead), "load", raising(ZeroDivisionError()).run)
    with pytest.raises(ZeroDivisionError):
        main(["generate", "model", "text"])


@pytest.mark.parametrize(
    ("typed", "meant"), [("generat", "generate"), ("loook", "look"), ("Chat", "chat"), ("inspct", "inspect")]
)
def test_an_unknown_verb_names_the_nearest(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([typed]) == 2
    error = capsys.readouterr().err
    assert error.startswith("clearhead: error: ")
    assert meant in error


@pytest.mark.parametrize(
    "args",
    [
        ["generate"],
        ["generate", "m", "p", "--tempratur", "1"],
        ["generate", "m", "p", "--top-k", "many"],
        ["generate", "m", "p", "--dtype", "float8"],
        ["look", "m", "text", "--layer", "first"],
        ["convert", "m"],
        ["inspect"],
    ],
)
def test_a_wrong_call_exits_with_two(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(args)
    assert ended.value.code == 2
    assert capsys.readouterr().out == ""


def test_a_reader_that_leaves_is_no_error() -> None:
    """`clearhead ... | head -1`: quiet, and not a success either."""
    code = """
import sys, time
import clearhead
from clearhead.cli import console, main
console.import_torch = lambda: None
clearhead.load = lambda *a, **k: None
clearhead.stream = lambda *a, **k: ("word " for _ in range(100_000))
sys.exit(main(["generate", "m", "p"]))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.read(4)
        run.stdout.close()
        assert run.stderr.read() == b""
        assert run.wait() == 141


def hears_ctrl_c() -> None:
    """A program started in the background by a shell ignores Ctrl-C, and hands that on to those it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_stops_cleanly() -> None:
    code = """
import sys, time
import clearhead
from clearhead.cli import console, main
def stream(*args, **options):
    yield "half a "
    time.sleep(60)
console.import_torch = lambda: None
clearhead.load, clearhead.stream = (lambda *a, **k: None), stream
sys.exit(main(["generate", "m", "p"]))
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, preexec_fn=hears_ctrl_c) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.read(7) == b"half a "
        run.send_signal(signal.SIGINT)
        assert run.wait() == 130
        assert run.stderr.read() == b"\n"


def test_ctrl_c_while_torch_is_imported() -> None:
    """An exception raised inside an import can come out as any other, so the program ends at once there."""
    code = """
import os, signal, sys
class Slow:
    def find_spec(self, name, *rest):
        if name == "torch":
            try:
                os.kill(os.getpid(), signal.SIGINT)
                while True: pass
            except KeyboardInterrupt:
                raise ImportError("torch is broken")
sys.meta_path.insert(0, Slow())
from clearhead.cli import main
sys.exit(main(["generate", "m", "p"]))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120, preexec_fn=hears_ctrl_c
    )
    assert (run.returncode, run.stderr) == (130, "\n")
