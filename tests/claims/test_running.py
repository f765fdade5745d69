"""Claims are measured once, kept seed by seed, and measured again when their code is another."""

from __future__ import annotations

import json
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.claims import code, running
from clearhead.claims.running import Measuring, bar_that_tells
from clearhead.claims.verdict import HOLDS
from tests.claims.fakes import Fakes

FILES = {"result.json", "figure.svg", "figure.png", "report.html"}


def test_what_is_written(fakes: Fakes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fakes.write("one", "tick = run.progress(2, 'steps')\ntick()\ntick()", seeds=3)
    assert fakes.main(monkeypatch, "one") == 0
    said = capsys.readouterr()
    assert "✓ holds" in said.out and "This is one." in said.out and "1.01 (0.985 to 1.03)" in said.out
    assert said.err == "wrote claims/one/report.html\n"
    folder = fakes.folder / "claims" / "one"
    assert {path.name for path in folder.iterdir()} == FILES | {"seeds"}
    found = json.loads((folder / "result.json").read_text())
    assert found["verdict"] == HOLDS and found["statements"] == [1, 2] and found["command"] == "clearhead claim one"
    assert found["numbers"]["size"]["mean"] == pytest.approx(1.01) and found["marks"][0]["why"] == "It is made up too."
    assert [seed["measured"]["values"]["size"] for seed in found["seeds"]] == [1.0, 1.01, 1.02]
    assert all(seed["seconds"] >= 0 and seed["date"] and seed["made_with"]["torch"] for seed in found["seeds"])
    page = (folder / "report.html").read_text()
    assert (
        "<svg" in page
        and "at least 0.5" in page
        and "http" not in page.split("<svg")[0]
        and "@" not in page.split("<style>")[0]
    )
    assert (folder / "figure.svg").read_bytes().startswith(b"<?xml") and (folder / "figure.png").read_bytes()[
        1:4
    ] == b"PNG"


def test_what_is_kept_is_not_measured_again(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.write("one", seeds=2)
    assert fakes.main(monkeypatch, "one") == 0 and fakes.notes() == ["one 0", "one 1"]
    assert fakes.main(monkeypatch, "one") == 0 and fakes.notes() == []
    assert fakes.main(monkeypatch, "one", "--seeds", "3") == 0 and fakes.notes() == ["one 2"]
    assert fakes.main(monkeypatch, "one", "--quick") == 0 and fakes.notes() == ["one 0"]
    assert fakes.main(monkeypatch, "one", "--fresh") == 0 and fakes.notes() == ["one 0", "one 1"]
    kept = fakes.folder / "claims" / "one" / "seeds" / "full-1.json"
    kept.write_bytes(kept.read_bytes()[:100])
    assert fakes.main(monkeypatch, "one") == 0 and fakes.notes() == ["one 1"]


def test_other_code_is_measured_again_and_other_words_are_not(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.write("one", "size = 1.0")
    assert fakes.main(monkeypatch, "one") == 0 and fakes.notes() == ["one 0"]
    fakes.change("one", "It is short.", "It is still short.")
    fakes.change("one", "low=0.5", "low=2.0")
    fakes.change("one", "axes.plot(", "axes.scatter([0], ")
    fakes.change("one", "size = 1.0", "size = 1.0  # a number")
    assert fakes.main(monkeypatch, "one") == 0 and fakes.notes() == []
    report = (fakes.folder / "claims" / "one" / "report.html").read_text()
    assert "still short" in report and "does not hold" in report
    fakes.change("one", "size = 1.0", "size = 1.5")
    assert fakes.main(monkeypatch, "one") == 0 and fakes.notes() == ["one 0"]
    fakes.helper("2.0")
    assert fakes.main(monkeypatch, "one") == 0 and fakes.notes() == ["one 0"]
    monkeypatch.setattr(code, "version", lambda name: "0.2.0")
    assert fakes.main(monkeypatch, "one") == 0 and fakes.notes() == ["one 0"]


def test_an_interrupted_run_goes_on(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes.write("one", "if run.seed == 2 and not (FOLDER / 'go').exists(): raise KeyboardInterrupt", seeds=4)
    assert fakes.main(monkeypatch, "one") == 130
    assert "the same command goes on from there" in capsys.readouterr().err
    assert fakes.notes() == ["one 0", "one 1", "one 2"]
    (fakes.folder / "go").touch()
    assert fakes.main(monkeypatch, "one") == 0
    assert fakes.notes() == ["one 2", "one 3"]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["oen"], 2, "there is no claim 'oen'; perhaps one"),
        (["one", "--seeds", "0"], 2, "seeds is 0"),
        (["one", "--all"], 2, "leave the name out"),
        (["one", "--jobs", "2"], 2, "--jobs is about --all"),
        (["--quick"], 2, "name a claim, or give --all"),
        (
            ["one", "--out", "taken"],
            1,
            "taken/one can't be written to (Not a directory); name another folder with --out",
        ),
        (["lacking"], 1, 'the claim lacking needs peft, which is not installed. Run: pip install "clearhead[train]"'),
    ],
)
def test_what_is_wrong_is_said_before_the_work(
    args: list[str],
    code: int,
    said: str,
    fakes: Fakes,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fakes.write("one")
    fakes.write("lacking", cost="needs=('peft',)")
    (fakes.folder / "taken").touch()
    monkeypatch.setitem(sys.modules, "peft", None)
    assert fakes.main(monkeypatch, *args) == code
    err = capsys.readouterr().err
    assert err.startswith("clearhead: error: ") and said in err and len(err.splitlines()) == 1
    assert fakes.notes() == []


def test_without_matplotlib_there_are_numbers_and_no_figure(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes.write("one")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert fakes.main(monkeypatch, "one") == 1
    assert 'pip install "clearhead[claims]"' in capsys.readouterr().err and fakes.notes() == []
    fakes.here(monkeypatch)
    result = clearhead.claim("one")
    assert result.verdict == HOLDS
    with pytest.raises(clearhead.ClearheadError, match=r"clearhead\[claims\]"):
        result.svg()


def test_in_python(fakes: Fakes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fakes.write("one_more", "import torch\nreturn Measured(values={'size': 1 + torch.rand(()).item() / 1000, 'n': 3})")
    fakes.here(monkeypatch)
    monkeypatch.chdir(fakes.folder)
    before = torch.random.get_rng_state()
    result = clearhead.claim("one-more", quick=True, seeds=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert result.verdict == HOLDS and result.numbers["n"].mean == 3 and result.marks[0].mark.of == "size"
    assert result.quick and result.command == "clearhead claim one-more --quick --seeds 2"
    assert [seed.measured for seed in result.seeds] == [
        seed.measured for seed in clearhead.claim("one_more", quick=True, seeds=2).seeds
    ]
    assert not (fakes.folder / "claims").exists()
    result.show()
    assert "one-more  S1, S2  ✓ holds" in capsys.readouterr().out
    bundle = result._repr_mimebundle_()
    assert "✓ holds" in bundle["text/plain"] and "&lt;svg" in bundle["text/html"] and bundle["image/png"]
    assert json.loads(result.save(fakes.folder / "one.json").read_text())["claim"] == "one-more"


def test_numbers_that_are_none_are_kept_and_written_as_nothing(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.write("one", "return Measured(values={'size': float('inf'), 'other': (2.0, float('nan'), 3.0)})")
    assert fakes.main(monkeypatch, "one") == 0 and fakes.main(monkeypatch, "one") == 0
    assert fakes.notes() == ["one 0"]
    found = json.loads((fakes.folder / "claims" / "one" / "result.json").read_text(), parse_constant=pytest.fail)
    assert found["verdict"] == HOLDS and found["numbers"]["size"]["mean"] is None


# ---- what is trained once for several claims


def test_what_is_kept_is_made_once(tmp_path: Path) -> None:
    run = Measuring(seed=1, quick=True, folder=tmp_path)
    made: list[int] = []

    def make(size: int = 3) -> torch.Tensor:
        made.append(size)
        return torch.ones(size)

    assert run.kept("model", make).tolist() == run.kept("model", make).tolist() == [1, 1, 1]
    assert made == [3]
    for other in (Measuring(seed=2, quick=True, folder=tmp_path), Measuring(seed=1, quick=False, folder=tmp_path)):
        other.kept("model", make)
    run.kept("other", partial(make, 4))
    Measuring(seed=1, quick=True).kept("model", make)
    assert made == [3, 3, 3, 4, 3]


def test_what_was_made_before_a_moment_is_made_again(tmp_path: Path) -> None:
    Measuring(seed=0, quick=True, folder=tmp_path).kept("model", lambda: 1)
    for since, expected in ((time.time() - 60, 1), (time.time() + 60, 2)):
        assert Measuring(seed=0, quick=True, folder=tmp_path, since=since).kept("model", lambda: 2) == expected


def test_what_other_code_made_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Measuring(seed=0, quick=True, folder=tmp_path)
    monkeypatch.setattr(running, "_code_behind", lambda make: "before")
    assert run.kept("model", lambda: 1) == 1
    monkeypatch.setattr(running, "_code_behind", lambda make: "after")
    assert run.kept("model", lambda: 2) == 2


def test_the_code_behind_is_that_of_the_module_it_is_written_in() -> None:
    from clearhead.claims.code import code_of
    from clearhead.claims.ingredients.small_models import attention, decoder

    hashes = {running._code_behind(made) for made in (decoder, partial(partial(attention, 1), 2))}
    assert hashes == {code_of("clearhead.claims.ingredients.small_models")}
    assert running._code_behind(lambda: 1) == "other"


def test_of_two_at_once_one_makes_it_and_one_waits(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> int:
        made.append(1)
        time.sleep(0.3)
        return 7

    got: list[int] = []
    ask = [
        threading.Thread(target=lambda: got.append(Measuring(seed=0, quick=True, folder=tmp_path).kept("model", make)))
        for _ in range(3)
    ]
    for thread in ask:
        thread.start()
    for thread in ask:
        thread.join()
    assert got == [7, 7, 7] and made == [1]


def test_a_bar_tells_of_its_beginning_and_its_end_and_seldom_between() -> None:
    told: list[tuple[str, int, int]] = []
    tick = bar_that_tells(lambda *said: told.append(said), every=60)(1000, "steps")
    for _ in range(1000):
        tick()
    assert told == [("steps", 0, 1000), ("steps", 1000, 1000)]
