"""Spoken numbers: which, by whom, and that a model can hear them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from clearhead.errors import ClearheadError
from clearhead.inputs.audio import read_sound
from clearhead.training.corpora import spoken_numbers
from clearhead.training.corpora.spoken_numbers import RATE, Clip, clips, speak, words
from clearhead.training.data.sounds import find_clips
from clearhead.training.recipes.speech_numbers import HEARD

COLUMNS = ("file", "text", "speaker")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "zero"),
        (7, "seven"),
        (21, "twenty one"),
        (100, "one hundred"),
        (319, "three hundred and nineteen"),
        (2000, "two thousand"),
        (4007, "four thousand and seven"),
        (9999, "nine thousand nine hundred and ninety nine"),
    ],
)
def test_numbers_as_they_are_said(number: int, said: str) -> None:
    assert words(number) == said


def test_no_two_numbers_are_said_alike() -> None:
    said = {words(number) for number in range(10_000)}
    assert len(said) == 10_000 and len({word for text in said for word in text.split()}) == 31


def test_clips_are_the_same_every_time_and_of_every_kind() -> None:
    some = clips(4000)
    assert some == clips(4000) and some[:100] == clips(100) and some != clips(4000, seed=1)
    assert {clip.speaker for clip in some} == set(spoken_numbers.SPEAKERS)
    assert {clip.accent for clip in some} == set(spoken_numbers.ACCENTS)
    lengths = Counter(len(str(clip.number)) for clip in some)
    assert all(abs(lengths[n] / 40 - share) < 3 for n, share in spoken_numbers.DIGITS.items())


def espeak(folder: Path, body: str) -> None:
    """An espeak-ng that is this Python program."""
    folder.mkdir()
    (folder / "espeak-ng").write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    (folder / "espeak-ng").chmod(0o755)


def test_without_espeak_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClearheadError, match="apt-get install espeak-ng"):
        spoken_numbers.gather(tmp_path, print)


def test_an_espeak_that_lacks_a_voice_or_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    espeak(tmp_path / "bin", "print('5  variant  --/M  male1  !v/m1'); sys.exit('no sound today')")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ClearheadError, match="no voice 'm2'"):
        spoken_numbers.gather(tmp_path, print)
    with pytest.raises(ClearheadError, match=r"could not speak as en-us\+m1: no sound today"):
        speak(str(tmp_path / "bin" / "espeak-ng"), [Clip(7, "m1", "en-us", 200, 50)], tmp_path, print)


def test_espeak_speaks_and_the_table_says_what(tmp_path: Path) -> None:
    """`.ci/run` installs espeak-ng; nothing here is skipped without it."""
    program = shutil.which("espeak-ng")
    assert program is not None, "apt-get install espeak-ng"
    slow, fast = spoken_numbers.SPEEDS[0], spoken_numbers.SPEEDS[-1]
    wanted = [
        Clip(7777, "m3", "en-us", slow, 50),
        Clip(7777, "m3", "en-us", fast, 50),
        Clip(7777, "f2", "en-us", slow, 50),
        Clip(7777, "m3", "en-gb-scotland", slow, 50),
        Clip(0, "m3", "en-us", slow, 50),
    ]
    said: list[str] = []
    speak(program, wanted, tmp_path, said.append)
    assert len(said) == 1 and "5 numbers" in said[0]
    found = find_clips(tmp_path, COLUMNS)
    assert [clip.text for clip in found] == [words(clip.number) for clip in wanted]
    assert [clip.speaker for clip in found] == [clip.speaker for clip in wanted]
    sounds = [read_sound(clip.path) for clip in found]
    assert {rate for _, rate in sounds} == {RATE} == {HEARD.rate}
    seconds = [len(samples) / rate for samples, rate in sounds]
    assert all(0.1 < length < HEARD.seconds for length in seconds)
    # Faster is shorter, and so is less to say; nobody is silent, and no two are alike.
    assert seconds[1] < 0.8 * seconds[0] and seconds[4] < 0.4 * seconds[0]
    assert all(np.abs(samples).max() > 0.05 for samples, _ in sounds)
    heads = [samples[:4000].tobytes() for samples, _ in sounds]
    assert len(set(heads)) == 5


def test_a_sound_is_as_long_and_as_high_as_espeak_made_it(tmp_path: Path) -> None:
    """Another rate, the same sound: as linear interpolation has it, nearly."""
    program = shutil.which("espeak-ng")
    assert program is not None, "apt-get install espeak-ng"
    speak(program, [Clip(42, "m3", "en-us", 200, 50)], tmp_path, lambda text: None)
    raw = str(tmp_path / "raw.wav")
    subprocess.run([program, "-v", "en-us+m3", "-s", "200", "-p", "50", "-z", "-w", raw, words(42)], check=True)
    (ours_N1, _), (theirs_N1, rate) = read_sound(tmp_path / "0000.wav"), read_sound(raw)
    assert rate != RATE and len(ours_N1) / RATE == pytest.approx(len(theirs_N1) / rate, abs=1e-3)
    expected = np.interp(np.arange(len(ours_N1)) / RATE, np.arange(len(theirs_N1)) / rate, theirs_N1[:, 0])
    assert np.corrcoef(ours_N1[:, 0], expected)[0, 1] > 0.95
