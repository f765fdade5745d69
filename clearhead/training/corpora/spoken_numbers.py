"""Numbers from 0 to 9,999, said in English by the voices of espeak-ng: 8,000 sounds of one to three seconds.

A speaker is one of espeak's variants, which are timbres, and speaks with several accents: so one that is held out is
heard in none.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import os
import random
import shutil
import subprocess
import wave
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clearhead.errors import ClearheadError
from clearhead.inputs.audio import read_sound
from clearhead.progress import progress_bar

CLIPS = 8000
RATE = 16000
TABLE = "transcripts.tsv"
ACCENTS = (
    "en-us",
    "en-us-nyc",
    "en-gb",
    "en-gb-x-rp",
    "en-gb-x-gbclan",
    "en-gb-x-gbcwmd",
    "en-gb-scotland",
    "en-029",
)
SPEAKERS = tuple(
    "m1 m2 m3 m4 m5 m6 m7 m8 f1 f2 f3 f4 f5 klatt Alex Andrea Andy Annie Gene Jacky Lee Mario Michael Mike "
    "adam antonio aunty belinda benjamin boris caleb david ed edward grandma grandpa iven john kaukovalta linda "
    "max miguel norbert pablo paul pedro quincy rob robert shelby steph travis victor zac".split()
)
DIGITS = {1: 2, 2: 8, 3: 30, 4: 60}
"""How often numbers of so many digits are said."""
SPEEDS = range(190, 261)
"""Words a minute, as espeak counts them: the longest number lasts less than three seconds."""
PITCHES = range(30, 71)
SEED = 0


@dataclass(frozen=True)
class Clip:
    """What is said, and how."""

    number: int
    speaker: str
    accent: str
    speed: int
    pitch: int


def gather(folder: Path, say: Callable[[str], None]) -> None:
    """Write the sounds and their table to `folder`: transcripts.tsv, 0000.wav, 0001.wav, ...

    Raises:
        ClearheadError: there is no espeak-ng, it fails, or a package that this takes is not installed.
    """
    program = shutil.which("espeak-ng")
    if program is None:
        raise ClearheadError(
            "corpus:spoken_numbers is spoken by espeak-ng, which is not installed. Run: apt-get install espeak-ng; or "
            "learn from sounds of your own (--set data.path=FOLDER)"
        )
    known = subprocess.run([program, "--voices=variant"], capture_output=True, text=True, check=False).stdout
    unknown = [name for name in SPEAKERS if f"!v/{name}" not in known.split()]
    if unknown:
        raise ClearheadError(
            f"this espeak-ng has no voice {unknown[0]!r}, which corpus:spoken_numbers takes; install version 1.51 "
            "or newer (apt-get install espeak-ng)"
        )
    missing = [name for name in ("num2words", "scipy") if importlib.util.find_spec(name) is None]
    if missing:
        raise ClearheadError(
            f'corpus:spoken_numbers is made with the package {missing[0]}. Run: pip install "clearhead[train]"'
        )
    speak(program, clips(CLIPS), folder, say)


def clips(n: int, seed: int = SEED) -> list[Clip]:
    """The same for the same seed, and the first of more."""
    rng = random.Random(seed)
    return [_clip(rng) for _ in range(n)]


def _clip(rng: random.Random) -> Clip:
    digits = rng.choices([*DIGITS], [*DIGITS.values()])[0]
    return Clip(
        number=rng.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits),
        speaker=rng.choice(SPEAKERS),
        accent=rng.choice(ACCENTS),
        speed=rng.choice(SPEEDS),
        pitch=rng.choice(PITCHES),
    )


def words(number: int) -> str:
    """A number as it is said, in plain words: "seven hundred and twenty one"."""
    spelt = importlib.import_module("num2words").num2words(number)
    return " ".join(str(spelt).replace("-", " ").replace(",", "").split())


def speak(program: str, wanted: list[Clip], folder: Path, say: Callable[[str], None]) -> None:
    """Have espeak-ng say all of them, several at a time, and write the table."""
    say(f"having espeak-ng say {len(wanted):,} numbers (a few minutes)")
    names = [f"{i:04}.wav" for i in range(len(wanted))]
    # A process that speaks waits more than it works.
    with (
        ThreadPoolExecutor(4 * (os.cpu_count() or 1)) as pool,
        progress_bar("speaking", len(wanted)) as tell,
    ):
        done = pool.map(lambda clip, name: _speak(program, clip, folder / name), wanted, names)
        for _ in done:
            tell(1)
    with (folder / TABLE).open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerow(["file", "text", "speaker"])
        table.writerows([name, words(clip.number), clip.speaker] for name, clip in zip(names, wanted, strict=True))


def _speak(program: str, clip: Clip, path: Path) -> None:
    """One sound, at the rate that models of speech hear."""
    voice = f"{clip.accent}+{clip.speaker}"
    how = ["-v", voice, "-s", str(clip.speed), "-p", str(clip.pitch), "-z", "-w", str(path)]
    done = subprocess.run([program, *how, words(clip.number)], capture_output=True, text=True, check=False)
    if done.returncode or not path.is_file():
        why = " ".join(done.stderr.split())[:200] or f"exit code {done.returncode}"
        raise ClearheadError(f"espeak-ng could not speak as {voice}: {why}")
    samples, rate = read_sound(path)
    heard = importlib.import_module("scipy.signal").resample_poly(samples[:, 0], RATE, rate)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((heard.clip(-1, 1) * 32767).round().astype(np.int16).tobytes())
