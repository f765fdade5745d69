"""Sounds and what is said in each, from a table of files; heard once, and mapped into memory from then on.

A folder of them holds `frames.npy` (N, bands, frames) in half precision and an index. It takes its name, which is a
hash of files, texts and how sounds are heard, when it is complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import ClearheadError
from clearhead.inputs.audio import AudioProcessor, mono, read_sound
from clearhead.progress import progress_bar
from clearhead.training.checkpoint import replacing
from clearhead.training.data.documents import BY_SUFFIX, Corpus, Source, find, hash_of, place, records
from clearhead.training.data.shards import file_hashes

VERSION = 1
FRAMES, INDEX = "frames.npy", "index.json"
TABLES = tuple(suffix for suffix, kind in BY_SUFFIX.items() if kind != "parquet")
AT_ONCE = 32


@dataclass(frozen=True)
class Clip:
    """One row of the table."""

    path: str
    text: str
    speaker: str


@dataclass(frozen=True)
class SoundStore:
    """Spectrograms of one size, mapped into memory."""

    frames_NMF: NDArray[np.float16]
    heard_N: NDArray[np.int64]
    """So many frames of each hold sound; silence that was added is behind them."""
    clips: tuple[Clip, ...]
    hash: str

    @property
    def texts(self) -> list[str]:
        return [clip.text for clip in self.clips]

    @property
    def speakers(self) -> list[str]:
        return [clip.speaker for clip in self.clips]


# ---- which there are


def find_clips(path: Path, columns: Sequence[str]) -> list[Clip]:
    """What a table says, or that of a folder.

    Args:
        path: a table, or a folder with one; the files that it names lie in the same folder.
        columns: what it calls the file, the text, and the speaker if it has one.

    Raises:
        ClearheadError: there is no such table, or several; a column is missing, or a row has no file or no text.
    """
    table = _table(path)
    corpus = Corpus(path=str(table), columns=tuple(columns))
    clips: list[Clip] = []
    for source in find(corpus):
        for record in records(corpus, source):
            name, text, *speaker = record.texts
            text = " ".join(text.split())
            if not name or not text:
                lacks = f"no {columns[0]!r}" if not name else f"no {columns[1]!r} for {name}"
                raise ClearheadError(
                    f"{place(source, record.item)} of {table.parent} has {lacks}; write down what is said there, or "
                    "take the row out"
                )
            clips.append(Clip(str(table.parent / name), text, *(speaker or [""])))
    if not clips:
        raise ClearheadError(f"{table} names no sound")
    return clips


def _table(path: Path) -> Path:
    if not path.exists():
        raise ClearheadError(f"there is no folder {path}; name one with sounds and a table of what is said in them")
    if not path.is_dir():
        return path
    found = sorted(file for file in path.iterdir() if file.suffix.lower() in TABLES and not file.name.startswith("."))
    if len(found) != 1:
        what = f"several tables ({', '.join(file.name for file in found[:4])})" if found else "no table"
        raise ClearheadError(
            f"{path} has {what}; name the one ({', '.join(TABLES)}) that says which file has which text"
        )
    return found[0]


# ---- heard once


def store_sounds(
    path: Path,
    columns: Sequence[str],
    processor: AudioProcessor,
    folder: Path,
    *,
    progress: bool | None = None,
) -> SoundStore:
    """The spectrograms of all sounds, from `folder` where they are there already, and else made and put there.

    Args:
        path: a table, or a folder with one.
        columns: what it calls the file, the text, and the speaker if it has one.
        processor: how sounds are heard.
        folder: where the result is kept.
        progress: show a bar on standard error; None is when a person is watching.

    Raises:
        ClearheadError: a sound can't be read, is too long or has another rate, or the folder can't be written.
    """
    clips = find_clips(path, columns)
    files = {clip.path: Source(path=clip.path, name=clip.path, format="sound", size=0) for clip in clips}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hashes = file_hashes(Corpus(path=str(path)), [*files.values()], folder)
    except OSError as problem:
        raise ClearheadError(f"{folder} can't be written: {problem.strerror or problem}") from problem
    what = [[hashes[clip.path][-1], clip.text, clip.speaker] for clip in clips]
    key = hash_of([VERSION, what, asdict(processor)])
    inside = folder / f"sounds-{key[:16]}"
    if not inside.is_dir():
        with replacing(inside) as temporary:
            temporary.mkdir()
            heard_N = _hear_all(clips, processor, temporary / FRAMES, progress)
            index = {"hash": key, "heard": heard_N.tolist(), "clips": [asdict(clip) for clip in clips]}
            (temporary / INDEX).write_text(json.dumps(index), encoding="utf-8")
    return _open(inside)


def _hear_all(clips: Sequence[Clip], processor: AudioProcessor, path: Path, progress: bool | None) -> NDArray[np.int64]:
    """Write the frames of all clips; how many of each hold sound. Reading and transforms let go of Python's lock, so
    threads do it together.
    """
    shape = (len(clips), processor.n_mels, processor.n_frames)
    frames_NMF = np.lib.format.open_memmap(path, "w+", np.float16, shape)
    heard_N = np.zeros(len(clips), np.int64)
    wrong: list[str] = []

    def work(first: int, tell: Callable[[int], object]) -> None:
        sounds = []
        for i, clip in enumerate(clips[first : first + AT_ONCE], first):
            try:
                sounds.append(samples := _samples(clip.path, processor))
                heard_N[i] = -(-len(samples) // processor.hop)
            except ClearheadError as problem:
                wrong.append(str(problem))
        if not wrong:
            frames_NMF[first : first + len(sounds)] = processor(sounds).numpy()
        tell(len(clips[first : first + AT_ONCE]))

    with progress_bar("hearing sounds", len(clips), progress) as tell, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(lambda first: work(first, tell), range(0, len(clips), AT_ONCE)))
    if wrong:
        more = f" (and {len(wrong) - 3:,} more)" if len(wrong) > 3 else ""
        raise ClearheadError(f"{'; '.join(sorted(wrong)[:3])}{more}")
    frames_NMF.flush()
    return np.minimum(heard_N, processor.n_frames)


def _samples(path: str, processor: AudioProcessor) -> NDArray[np.float32]:
    """One channel of a file, of the rate and at most the length that is heard."""
    samples, rate = read_sound(path)
    if rate != processor.rate:
        raise ClearheadError(
            f"{path} has {rate:,} samples a second, and {processor.rate:,} are expected (data.spectrogram.rate); "
            f"resample it, for example with `ffmpeg -i in.wav -ar {processor.rate} out.wav`"
        )
    if len(samples) > processor.seconds * rate:
        raise ClearheadError(
            f"{path} lasts {len(samples) / rate:.2f} s, and {processor.seconds} s are heard at a time "
            "(data.spectrogram.seconds); cut it, or take its row out of the table"
        )
    return mono(samples)


def _open(folder: Path) -> SoundStore:
    try:
        index = json.loads((folder / INDEX).read_bytes())
        frames_NMF = np.load(folder / FRAMES, mmap_mode="r", allow_pickle=False)
        clips = tuple(Clip(**clip) for clip in index["clips"])
        if not len(frames_NMF) == len(clips) == len(index["heard"]):
            raise ValueError(f"{len(frames_NMF)} spectrograms and {len(clips)} texts")
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ClearheadError(f"{folder} is broken ({problem}); delete it, and it is made anew") from problem
    return SoundStore(frames_NMF, np.array(index["heard"], np.int64), clips, index["hash"])
