"""All claims at once, by the real command line: side by side, alone, with errors, interrupted, and on from there."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.claims.fakes import Fakes

TOGETHER = """
(FOLDER / f"{run.seed} is here").touch()
until = time.monotonic() + 60
while not all((FOLDER / f"{seed} is here").exists() for seed in (0, 1)):
    assert time.monotonic() < until, "it waited for the other seed in vain"
    time.sleep(0.01)
"""
ALONE = """
others = [path.name for path in FOLDER.glob("* is here")]
assert len(others) == 2, "it was not the last"
note(f"{os.environ['OMP_NUM_THREADS']} to begin with, {__import__('torch').get_num_threads()} threads")
"""


@pytest.mark.slow
def test_every_claim(fakes: Fakes) -> None:
    fakes.write("together", TOGETHER, seeds=2)
    fakes.write("alone", ALONE, cost="alone=True, threads=2")
    fakes.write("failing", low=2.0)
    fakes.write("raising", "raise ZeroDivisionError('oh no')")
    fakes.write("dying", "os._exit(7)")
    fakes.write("lacking", cost="needs=('peft',)")
    code, out, err = fakes.run("--all", "--jobs", "2")
    assert code == 1, err
    notes = fakes.notes()
    assert notes[-2:] == ["alone 0", "1 to begin with, 2 threads"]
    assert sorted(notes[:-2]) == ["dying 0", "failing 0", "raising 0", "together 0", "together 1"]
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert "✓ holds" in rows["together"] and "✓ holds" in rows["alone"] and "✗ does not hold" in rows["failing"]
    assert "ZeroDivisionError: oh no" in rows["raising"] and "exit code 7" in rows["dying"]
    assert "needs peft" in rows["lacking"] and "not run" in rows["lacking"]
    assert "6 claims: 2 hold, 1 does not hold, 1 was not run, 2 ended with an error" in out
    assert "✓ together: holds" in err and "wrote claims/index.html" in err

    folder = fakes.folder / "claims"
    assert "oh no" in (folder / "raising" / "error.txt").read_text()
    page = (folder / "index.html").read_text()
    assert 'href="together/report.html"' in page and 'href="raising/error.txt"' in page and "needs peft" in page
    assert (folder / "together" / "report.html").exists() and not (folder / "raising" / "report.html").exists()
    table = (folder / "claims.md").read_text()
    assert "| **failing**: This is failing. It is short. | S1, S2 | size | 1 | at least 2 | does not hold |" in table
    assert "1 claim with 2 seeds" in table and "| S2 | alone, dying, " in table
    kept = json.loads((folder / "claims.json").read_text())
    verdicts = {claim["claim"]: claim["verdict"] for claim in kept["claims"]}
    assert verdicts["lacking"] == "not run" and verdicts["raising"] == "ended with an error"

    for name in ("raising", "dying"):
        (fakes.folder / "fakes" / f"{name}.py").unlink()
    (folder / "index.html").unlink()
    code, out, err = fakes.run("--all", "--json")
    assert (code, fakes.notes()) == (0, []), "something was measured again"
    assert [claim["claim"] for claim in json.loads(out)["claims"]] == ["alone", "failing", "lacking", "together"]
    assert (folder / "index.html").exists()


@pytest.mark.slow
def test_ctrl_c_ends_all_processes_and_leaves_what_is_done(fakes: Fakes) -> None:
    wait = "note(f'process {os.getpid()}')\nif not (FOLDER / 'go').exists(): time.sleep(60)"
    fakes.write("done")
    fakes.write("waits", wait, seeds=2)
    begun = fakes.folder / "notes"
    with fakes.start("--all", "--quick", "--seeds", "2", "--jobs", "3") as program:
        wait_for(lambda: begun.exists() and begun.read_text().count("process") == 2 and kept(fakes) == 2)
        os.killpg(program.pid, signal.SIGINT)
        _, err = program.communicate(timeout=60)
    assert program.returncode == 130 and "the same command goes on from there" in err and "Traceback" not in err
    pids = [int(note.split()[1]) for note in fakes.notes() if note.startswith("process")]
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    (fakes.folder / "go").touch()
    code, _, err = fakes.run("--all", "--quick", "--seeds", "2")
    assert code == 0, err
    assert sorted(note for note in fakes.notes() if "process" not in note) == ["waits 0", "waits 1"]


@pytest.mark.slow
def test_processes_end_when_the_first_is_killed(fakes: Fakes) -> None:
    fakes.write("waits", "note(f'process {os.getpid()}')\ntime.sleep(60)")
    begun = fakes.folder / "notes"
    with fakes.start("--all") as program:
        wait_for(lambda: begun.exists() and "process" in begun.read_text())
        program.kill()
        program.communicate(timeout=60)
    (pid,) = (int(note.split()[1]) for note in fakes.notes() if note.startswith("process"))
    wait_for(lambda: not Path(f"/proc/{pid}").exists())


def test_what_is_wrong_is_said_before_the_work(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.write("one")
    (fakes.folder / "taken").touch()
    assert fakes.main(monkeypatch, "--all", "--out", "taken") == 1
    assert fakes.main(monkeypatch, "--all", "--seeds", "0") == 2
    assert fakes.main(monkeypatch, "--all", "--jobs", "0") == 2
    assert fakes.notes() == []


def wait_for(come: Callable[[], bool]) -> None:
    until = time.monotonic() + 90
    while not come():
        assert time.monotonic() < until
        time.sleep(0.05)


def kept(fakes: Fakes) -> int:
    return len(list((fakes.folder / "claims" / "done" / "seeds").glob("quick-*.json")))
