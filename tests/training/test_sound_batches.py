"""Batches of sounds: what is held out, the order, what the decoder reads and tells, and how sounds are changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from clearhead.errors import ClearheadError, UsageError
from clearhead.training.config import AugmentConfig, SoundsConfig, TrainConfig
from clearhead.training.data.sound_batches import SoundBatches, changed, split_sounds
from clearhead.training.models import model_config
from clearhead.training.prepare import prepare
from clearhead.training.prepare_sounds import tokenizer_for
from tests.training.sounds import folder, tiny_speech


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("sounds") / "in", n=40)


def batches_of(config: TrainConfig, out: Path) -> SoundBatches:
    batches = prepare(config, out, quiet=True).batches
    assert isinstance(batches, SoundBatches)
    return batches


@pytest.fixture
def batches(place: Path, tmp_path: Path) -> SoundBatches:
    return batches_of(tiny_speech(place), tmp_path)


# ---- what is held out


def test_what_is_learnt_from_has_no_text_and_no_speaker_that_is_held_out() -> None:
    random = np.random.default_rng(0)
    texts = [f"text {i}" for i in random.integers(0, 200, 3000)]
    speakers = [f"speaker {i}" for i in random.integers(0, 50, 3000)]
    split = split_sounds(texts, speakers, 0.2, 0)
    groups = [split.learnt, *split.held_out().values()]
    assert sorted(np.concatenate(groups).tolist()) == list(range(3000))

    def of(names: list[str], which: np.ndarray) -> set[str]:
        return {names[i] for i in which}

    learnt = of(texts, split.learnt), of(speakers, split.learnt)
    assert not of(texts, split.new_texts) & learnt[0] and of(speakers, split.new_texts) <= learnt[1]
    assert not of(speakers, split.new_speakers) & learnt[1] and of(texts, split.new_speakers) <= learnt[0]
    assert not of(texts, split.new_both) & learnt[0] and not of(speakers, split.new_both) & learnt[1]
    # About a fifth of either, and a fifth of a fifth of both.
    assert 0.1 < len(split.new_texts) / 3000 < 0.22 and 0.1 < len(split.new_speakers) / 3000 < 0.22
    assert 0.02 < len(split.new_both) / 3000 < 0.07


def test_what_is_held_out_stays_so_when_others_come() -> None:
    texts, speakers = [f"text {i}" for i in range(100)], [f"speaker {i % 10}" for i in range(100)]
    few, all_ = split_sounds(texts[:50], speakers[:50], 0.3, 1), split_sounds(texts, speakers, 0.3, 1)
    for name in ("learnt", "new_texts", "new_speakers", "new_both"):
        assert getattr(few, name).tolist() == [i for i in getattr(all_, name) if i < 50]
    assert split_sounds(texts, speakers, 0.3, 2).learnt.tolist() != all_.learnt.tolist()


def test_a_speaker_alone_is_not_held_out() -> None:
    texts = [f"text {i}" for i in range(100)]
    for seed in range(20):
        split = split_sounds(texts, ["me"] * 100, 0.3, seed)
        assert len(split.learnt) > 50 and not len(split.new_speakers) and not len(split.new_both)
    assert len(split_sounds(texts, texts, 0.0, 0).learnt) == 100
    with pytest.raises(UsageError, match="all 1 sounds have a text or a speaker that is held out"):
        split_sounds(["text"], ["me"], 0.99, 0)


def test_the_tokenizer_has_not_read_what_is_held_out(tmp_path: Path) -> None:
    """It is the same where the sounds that are held out say something else, with other letters."""
    place, random = tmp_path / "in", np.random.default_rng(0)
    place.mkdir()
    texts = ["".join(random.choice([*"abcdef"], 4)) for _ in range(60)]
    speakers = [f"speaker {i % 6}" for i in range(60)]
    split = split_sounds(texts, speakers, 0.3, 0)
    held = [i for which in (split.new_texts, split.new_both) for i in which]
    assert len(held) > 5

    def trained(said: list[str]) -> tuple[str, int]:
        table = place / "table.tsv"
        rows = [f"{i}.wav\t{text}\t{speaker}" for i, (text, speaker) in enumerate(zip(said, speakers, strict=True))]
        table.write_text("\n".join(["file\ttext\tspeaker", *rows]) + "\n")
        data = SoundsConfig(path=str(table), tokenizer="wordpiece", vocab_size=60, held_out=0.3)
        learnt = split_sounds(said, speakers, 0.3, 0).learnt
        return tokenizer_for(data, table, tmp_path / "out", quiet=True).core.to_str(), len(learnt)

    # Held out are the texts whose hash says so: others of that kind are taken in their place.
    others = (f"z{i}" for i in range(10**4))
    changed = list(texts)
    for i in held:
        changed[i] = next(text for text in others if 1 in split_sounds(["ab", text], ["", ""], 0.3, 0).new_texts)
    assert trained(texts) == trained(changed)
    assert trained(texts) != trained(["z" + text for text in texts])


# ---- steps


def test_a_step_is_a_function_of_its_number(place: Path, tmp_path: Path, batches: SoundBatches) -> None:
    again = batches_of(tiny_speech(place), tmp_path)
    for number in (3, 0, 11, 3):
        one, two = batches.step(number), again.step(number)
        assert one.inputs.keys() == two.inputs.keys() >= {"tokens_BT", "frames"}
        assert all(torch.equal(one.inputs[name], two.inputs[name]) for name in one.inputs)
        assert torch.equal(one.targets, two.targets)
    other = batches_of(tiny_speech(place, "data.seed=1", "data.held_out=0"), tmp_path)
    same_rows = batches_of(tiny_speech(place, "data.held_out=0"), tmp_path)
    assert not torch.equal(other.step(0).inputs["frames"], same_rows.step(0).inputs["frames"])
    with pytest.raises(UsageError, match="no step -1"):
        batches.step(-1)


def test_every_sound_is_learnt_from_once_an_epoch_in_another_order(place: Path, tmp_path: Path) -> None:
    batches = batches_of(tiny_speech(place, "data.augment.masks=0", "data.augment.shift=0", "batch.rows=1"), tmp_path)
    store, n = batches.store, batches.n_rows
    seen = [batches.step(i).inputs["frames"][0].numpy().tobytes() for i in range(2 * n)]
    expected = sorted(store.frames_NMF[i].astype(np.float32).tobytes() for i in batches.split.learnt)
    assert sorted(seen[:n]) == sorted(seen[n:]) == expected
    assert seen[:n] != seen[n:]


def test_the_decoder_reads_a_mark_and_the_text_and_tells_the_text_and_a_mark(batches: SoundBatches) -> None:
    tokenizer = batches.said.tokenizer
    held = [i for batch in batches.held_out() for i in range(len(batch.targets))]
    assert len(held) == sum(map(len, batches.split.held_out().values()))
    texts = []
    for batch in batches.held_out():
        for tokens_T, targets_T in zip(batch.inputs["tokens_BT"], batch.targets, strict=True):
            told = targets_T[targets_T != -100].tolist()
            assert tokens_T[: len(told)].tolist() == [tokenizer.bos_id, *told[:-1]]
            assert told[-1] == tokenizer.eos_ids[0]
            texts.append(tokenizer.decode(told[:-1]))
    expected = [batches.store.clips[i].text for which in batches.split.held_out().values() for i in which]
    assert sorted(texts) == sorted(expected)


# ---- how sounds are changed


def sounds(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Frames that are all different, behind which silence of -1."""
    heard_B = np.random.default_rng(1).integers(5, 40, n)
    frames_BMF = np.random.default_rng(2).random((n, 6, 40)).astype(np.float32)
    for frames, heard in zip(frames_BMF, heard_B, strict=True):
        frames[:, heard:] = -1.0
    return frames_BMF, heard_B


def test_a_shift_moves_all_of_the_sound_and_loses_none() -> None:
    frames_BMF, heard_B = sounds()
    out_BMF = changed(frames_BMF, heard_B, np.random.default_rng(3), AugmentConfig(), 8)
    shifts = []
    for before, after, heard in zip(frames_BMF, out_BMF, heard_B, strict=True):
        (begin,) = (i for i in range(9) if np.array_equal(after[:, i : i + heard], before[:, :heard]))
        assert (after[:, :begin] == -1).all() and (after[:, begin + heard :] == -1).all()
        assert begin <= 40 - heard
        shifts.append(begin)
    assert set(shifts) == set(range(9))


def test_a_mask_hides_no_more_than_it_may() -> None:
    frames_BMF, heard_B = sounds()
    how = AugmentConfig(masks=1, bands=2, frames=5)
    out_BMF = changed(frames_BMF, heard_B, np.random.default_rng(3), how, 0)
    widths = set()
    for before, after in zip(frames_BMF, out_BMF, strict=True):
        hidden = after != before
        assert np.allclose(after[hidden], before.mean())
        bands, spans = hidden.all(axis=1), hidden.all(axis=0)
        assert np.array_equal(hidden, bands[:, None] | spans[None])
        for which in (bands, spans):
            at = np.flatnonzero(which)
            assert len(at) == 0 or at[-1] - at[0] + 1 == len(at)
        widths.add((int(bands.sum()), int(spans.sum())))
    assert {bands for bands, _ in widths} == {0, 1, 2} and {spans for _, spans in widths} == set(range(6))


def test_masks_wider_than_a_sound_hide_all_of_it_and_fail_nothing() -> None:
    frames_BMF, heard_B = sounds(20)
    out_BMF = changed(frames_BMF, heard_B, np.random.default_rng(3), AugmentConfig(masks=3, bands=99, frames=999), 99)
    assert out_BMF.shape == frames_BMF.shape and np.isfinite(out_BMF).all()


def test_held_out_sounds_are_not_changed(batches: SoundBatches) -> None:
    known = {frames.astype(np.float32).tobytes() for frames in batches.store.frames_NMF}
    assert all(one.numpy().tobytes() in known for batch in batches.held_out() for one in batch.inputs["frames"])
    assert any(one.numpy().tobytes() not in known for one in batches.step(0).inputs["frames"])


# ---- what does not fit


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("model.config.encoder.embed.positions.n=21", "40 frames of 1 s become 20 tokens, and .* has 21 positions"),
        ("model.config.context=2", "what is said takes up to .* tokens, and the model's decoder reads 2"),
    ],
)
def test_a_model_without_room_is_refused(place: Path, tmp_path: Path, setting: str, words: str) -> None:
    config = tiny_speech(place, setting)
    prepared = prepare(config, tmp_path, quiet=True)
    with pytest.raises(ClearheadError, match=words):
        prepared.batches.check(model_config(config, prepared.tokenizer))


def test_a_model_that_hears_nothing_or_else_is_refused(place: Path, tmp_path: Path, batches: SoundBatches) -> None:
    config = tiny_speech(place)
    made = model_config(config, batches.said.tokenizer)
    batches.check(made)
    wide = tiny_speech(place, "model.config.encoder.embed.front.n_mels=20")
    with pytest.raises(ClearheadError, match="sounds have 16 bands, and the model reads 20"):
        batches.check(model_config(wide, batches.said.tokenizer))
    assert made.encoder is not None and made.decoder is not None
    reads = replace(made.encoder, embed=made.decoder.embed)
    with pytest.raises(ClearheadError, match="this model hears none"):
        batches.check(replace(made, encoder=reads))
    with pytest.raises(ClearheadError, match=r"takes \d tokens, and 2 are read at most"):
        prepare(tiny_speech(place, "batch.length=2"), tmp_path, quiet=True)
    with pytest.raises(UsageError, match=r"objective\.name is next_token"):
        prepare(tiny_speech(place, "objective.name=next_token"), tmp_path, quiet=True)


def test_settings_that_make_no_sense_are_refused(place: Path) -> None:
    for setting, words in (
        ("data.held_out=1", "data.held_out is 1"),
        ("data.augment.masks=-1", "data.augment.masks is -1"),
        ('data.columns=["file"]', "data.columns are file"),
        ("data.spectrogram.hop=0", "data.spectrogram.hop is 0"),
    ):
        with pytest.raises(UsageError, match=words):
            tiny_speech(place, setting)
