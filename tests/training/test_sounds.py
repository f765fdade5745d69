"""Sounds from a table: heard as Whisper's extractor does, once, and every fault named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.inputs.audio import AudioProcessor
from clearhead.training.data import sounds
from clearhead.training.data.sounds import find_clips, store_sounds
from tests.oracles import error
from tests.training.sounds import HEARD, N_MELS, folder, spoken, write

COLUMNS = ("file", "text", "speaker")
PROCESSOR = AudioProcessor(n_mels=N_MELS, rate=HEARD.rate, n_fft=HEARD.n_fft, hop=HEARD.hop, seconds=HEARD.seconds)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return folder(tmp_path / "in", n=6)


def table(place: Path, text: str, name: str = "transcripts.tsv") -> None:
    (place / name).write_text(text)


def test_frames_are_those_of_the_published_extractor(place: Path, tmp_path: Path) -> None:
    from transformers import WhisperFeatureExtractor

    theirs = WhisperFeatureExtractor(
        feature_size=N_MELS, sampling_rate=HEARD.rate, hop_length=HEARD.hop, chunk_length=1, n_fft=HEARD.n_fft
    )
    store = store_sounds(place, COLUMNS, PROCESSOR, tmp_path / "out")
    assert store.frames_NMF.dtype == np.float16 and store.frames_NMF.shape == (6, N_MELS, 40)
    for clip, frames_MF in zip(store.clips, store.frames_NMF, strict=True):
        samples = sounds.read_sound(clip.path)[0][:, 0]
        expected = theirs(samples, sampling_rate=HEARD.rate, return_tensors="pt")["input_features"][0]
        # Half precision has eleven bits.
        assert error(torch.from_numpy(frames_MF.astype(np.float32)), expected) < 2**-11 + 1e-5


def test_how_much_of_a_window_is_sound(tmp_path: Path) -> None:
    place = tmp_path / "in"
    place.mkdir()
    for n in (1, 400, 401, 16000):
        write(place / f"{n}.wav", 0.1 * np.ones(n))
    table(place, "file\ttext\n" + "".join(f"{n}.wav\tlow\n" for n in (1, 400, 401, 16000)))
    assert store_sounds(place, COLUMNS[:2], PROCESSOR, tmp_path / "out").heard_N.tolist() == [1, 1, 2, 40]


def test_sounds_are_heard_once(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = store_sounds(place, COLUMNS, PROCESSOR, tmp_path / "out")
    assert isinstance(first.frames_NMF, np.memmap)
    with monkeypatch.context() as patch:
        patch.setattr(sounds, "read_sound", lambda path: pytest.fail(f"{path} is read again"))
        again = store_sounds(place, COLUMNS, PROCESSOR, tmp_path / "out")
    assert again.hash == first.hash and again.clips == first.clips
    assert np.array_equal(again.frames_NMF, first.frames_NMF) and np.array_equal(again.heard_N, first.heard_N)
    # Another sound, another text, another speaker, another way of hearing: each is made anew.
    hashes = {first.hash}
    write(place / "000.wav", spoken("low low", 0))
    hashes.add(store_sounds(place, COLUMNS, PROCESSOR, tmp_path / "out").hash)
    said = (place / "transcripts.tsv").read_text()
    for changed in (said.replace("low", "deep"), said.replace("speaker 1", "speaker 11")):
        table(place, changed)
        hashes.add(store_sounds(place, COLUMNS, PROCESSOR, tmp_path / "out").hash)
    other = AudioProcessor(n_mels=N_MELS, hop=800, seconds=1)
    hashes.add(store_sounds(place, COLUMNS, other, tmp_path / "out").hash)
    assert len(hashes) == 5


def test_nothing_is_left_of_what_could_not_be_finished(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "open_memmap", full)
    with pytest.raises(ClearheadError, match="No space left on device"):
        store_sounds(place, COLUMNS, PROCESSOR, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["fingerprints.json"]


def test_a_broken_store_is_named(place: Path, tmp_path: Path) -> None:
    store_sounds(place, COLUMNS, PROCESSOR, tmp_path / "out")
    (file,) = (tmp_path / "out").glob("sounds-*/frames.npy")
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(ClearheadError, match=f"{file.parent} is broken.*delete it"):
        store_sounds(place, COLUMNS, PROCESSOR, tmp_path / "out")


@pytest.mark.parametrize(
    ("lines", "columns", "words"),
    [
        ("file\ttext\tspeaker\n000.wav\tlow\ta\n001.wav\t \ta\n", COLUMNS, "row 2 .*has no 'text' for 001.wav"),
        ("file\ttext\tspeaker\n000.wav\t\ta\n", COLUMNS, "row 1 .*has no 'text' for 000.wav"),
        ("file\ttext\tspeaker\n\tlow\ta\n", COLUMNS, "row 1 .*has no 'file'"),
        ("file\tsentence\n000.wav\tlow\n", COLUMNS[:2], "line 2 has no 'text'; there is 'file', 'sentence'"),
        ("file\ttext\n000.wav\tlow\n", COLUMNS, "line 2 has no 'speaker'"),
        ("file\ttext\n000.wav\tlow\tme\n", COLUMNS[:2], "line 2 has 3 columns, and the first line 2"),
        ("file\ttext\n", COLUMNS[:2], "names no sound"),
    ],
)
def test_a_table_that_lacks_something(place: Path, lines: str, columns: tuple[str, ...], words: str) -> None:
    table(place, lines)
    with pytest.raises(ClearheadError, match=words):
        find_clips(place, columns)


def test_a_folder_has_one_table(place: Path) -> None:
    one = find_clips(place, COLUMNS)
    table(place, "file,text,speaker\n000.wav,low,a\n", "other.csv")
    with pytest.raises(ClearheadError, match=r"several tables \(other.csv, transcripts.tsv\)"):
        find_clips(place, COLUMNS)
    # Either can be named itself, and a text is its words.
    assert find_clips(place / "transcripts.tsv", COLUMNS) == one
    assert [clip.text for clip in find_clips(place / "other.csv", COLUMNS)] == ["low"]
    for path in place.glob("*.?sv"):
        path.unlink()
    with pytest.raises(ClearheadError, match="has no table"):
        find_clips(place, COLUMNS)
    with pytest.raises(ClearheadError, match="there is no folder"):
        find_clips(place / "nowhere", COLUMNS)


def test_sounds_that_can_not_be_heard_are_named(place: Path, tmp_path: Path) -> None:
    write(place / "001.wav", np.zeros(16400))
    write(place / "002.wav", np.zeros(100), rate=8000)
    (place / "003.wav").write_bytes(b"RIFF no sound")
    (place / "004.wav").unlink()
    clips = [line.split("\t") for line in (place / "transcripts.tsv").read_text().splitlines()[1:]]

    def problem(*which: int) -> str:
        table(place, "file\ttext\n" + "".join(f"{clips[i][0]}\t{clips[i][1]}\n" for i in which))
        with pytest.raises(ClearheadError) as raised:
            store_sounds(place, COLUMNS[:2], PROCESSOR, tmp_path / "out")
        return str(raised.value)

    assert "001.wav lasts 1.02 s, and 1 s are heard at a time (data.spectrogram.seconds); cut it" in problem(0, 1)
    assert "002.wav has 8,000 samples a second, and 16,000 are expected" in problem(0, 2)
    assert "003.wav can't be read as a" in problem(3)
    assert "004.wav" in problem(4)
    said = problem(0, 1, 2, 3, 5)
    assert all(f"00{i}.wav" in said for i in (1, 2, 3)) and "005.wav" not in said
    assert not list((tmp_path / "out").glob("*sounds*"))
