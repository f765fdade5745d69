"""Whole runs on sounds: what they leave behind, how they go on, and what is measured."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearhead
from clearhead.config import FramesConfig, LearnedPositions
from clearhead.errors import ClearheadError, UsageError
from clearhead.inputs.audio import AudioProcessor
from clearhead.model.build import build
from clearhead.training import checkpoint
from clearhead.training.config import ModelConfig, SoundsConfig, StartConfig
from clearhead.training.evaluate import evaluate_run
from clearhead.training.prepare import prepare
from clearhead.training.recipes import recipe
from clearhead.training.run import Trained, train
from tests.oracles import close
from tests.training.sounds import HEARD, folder, spoken, tiny_speech, write


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("sounds") / "in", n=40)


@pytest.fixture(scope="module")
def run(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run of six steps, of which the middle is kept too."""
    config = tiny_speech(place)
    config = replace(config, every=replace(config.every, save=3, keep=9))
    return train(config, out=tmp_path_factory.mktemp("run"), quiet=True)


def test_a_checkpoint_is_read_by_transformers_alike(place: Path, run: Trained, tmp_path: Path) -> None:
    """The folder alone says how a file becomes frames, and its greedy text is the same."""
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

    folder = run.checkpoint
    assert folder is not None
    ours, theirs = clearhead.load(folder), WhisperForConditionalGeneration.from_pretrained(folder).eval()
    samples = spoken("low high mid", 1)
    features = WhisperFeatureExtractor.from_pretrained(folder)(samples, sampling_rate=HEARD.rate, return_tensors="pt")[
        "input_features"
    ]
    path = write(tmp_path / "a.wav", samples)
    assert close(AudioProcessor.from_folder(folder)(samples.astype(np.float32)), features)
    batch = next(prepare(tiny_speech(place), folder.parent, quiet=True).batches.held_out())
    tokens_BT, frames_BMF = batch.inputs["tokens_BT"], batch.inputs["frames"]
    with torch.no_grad():
        output = theirs(input_features=frames_BMF, decoder_input_ids=tokens_BT, labels=batch.targets)
        assert close(ours(tokens_BT, frames=frames_BMF), output.logits)
        # Theirs is told the targets alone, and puts the same beginning before them.
        assert close(theirs(input_features=frames_BMF, labels=batch.targets).loss, output.loss)
        ids = [theirs.config.decoder_start_token_id]
        for _ in range(8):
            logits_TV = theirs(input_features=features, decoder_input_ids=torch.tensor([ids])).logits[0]
            ids.append(int(logits_TV[-1].argmax()))
            if ids[-1] == theirs.config.eos_token_id:
                break
    result = clearhead.generate(ours, str(path), max_new_tokens=8, temperature=0)
    stop = [] if result.finish_reason == "length" else [theirs.config.eos_token_id]
    assert [*result.tokens, *stop][: len(ids) - 1] == ids[1:]


def test_the_loss_of_held_out_sounds_is_theirs(place: Path, tmp_path: Path) -> None:
    from transformers import WhisperForConditionalGeneration

    config = tiny_speech(place, "objective.label_smoothing=0", "every.held_out=0", steps=2)
    done = train(config, out=tmp_path, quiet=True)
    assert done.checkpoint is not None
    theirs = WhisperForConditionalGeneration.from_pretrained(done.checkpoint).eval()
    total = n = 0.0
    with torch.no_grad():
        for batch in prepare(config, tmp_path, quiet=True).batches.held_out():
            loss = theirs(input_features=batch.inputs["frames"], labels=batch.targets).loss
            count = int((batch.targets != -100).sum())
            total, n = total + float(loss) * count, n + count
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    (measured,) = [line["held_out_loss"] for line in lines if "held_out_loss" in line]
    assert measured == pytest.approx(total / n, rel=1e-5)


def test_a_run_on_sounds_goes_on_bit_for_bit(place: Path, run: Trained, tmp_path: Path) -> None:
    """Changed sounds, micro-batches, and a stop in the middle."""
    assert run.checkpoint is not None
    middle = run.checkpoint.parent / "step-000003"
    shutil.copytree(middle, tmp_path / "step-000003")
    config = tiny_speech(place)
    config = replace(config, every=replace(config.every, save=3, keep=9))
    train(config, out=tmp_path, resume=True, quiet=True)
    states = [checkpoint.read_state(path) for path in (run.checkpoint, tmp_path / "step-000006")]
    weights = [clearhead.load(path).state_dict() for path in (run.checkpoint, tmp_path / "step-000006")]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    assert torch.equal(states[0]["random"]["torch"], states[1]["random"]["torch"])
    with pytest.raises(ClearheadError, match="other data"):
        train(replace(config, data=replace(config.data, seed=1)), out=tmp_path, resume=True, quiet=True)


def test_what_was_held_out_is_measured_apart(place: Path, run: Trained) -> None:
    report, path = run.report, run.checkpoint
    assert report is not None and path is not None
    split = prepare(tiny_speech(place), path.parent, quiet=True).batches.split  # type: ignore[attr-defined]
    sizes = {name: len(which) for name, which in split.held_out().items() if len(which)}
    assert report["sounds_on"] == sizes and report["sounds"] == sum(sizes.values()) > 0
    assert {*report["word_error_rate_on"]} == {*sizes} and report["word_error_rate"] >= 0
    mean = sum(report["exact_on"][name] * n for name, n in sizes.items()) / report["sounds"]
    assert report["exact"] == pytest.approx(mean)
    # `clearhead evaluate CHECKPOINT` finds the same.
    found: Any = evaluate_run(clearhead.load(path), path)
    assert found == {name: report[name] for name in found}


def test_a_run_goes_on_from_a_checkpoint_with_its_tokenizer_and_its_way_of_hearing(
    place: Path, run: Trained, tmp_path: Path
) -> None:
    assert run.checkpoint is not None
    config = tiny_speech(place, steps=1)
    start = replace(config, model=StartConfig(source=str(run.checkpoint)), data=replace(config.data, spectrogram=None))
    done = train(start, out=tmp_path / "on", quiet=True)
    assert done.checkpoint is not None
    for name in ("preprocessor_config.json", "tokenizer.json"):
        assert (done.checkpoint / name).read_bytes() == (run.checkpoint / name).read_bytes()
    other = replace(start, data=replace(config.data, spectrogram=replace(HEARD, hop=200)))
    with pytest.raises(UsageError, match="says itself how sounds are heard"):
        train(other, out=tmp_path / "other", quiet=True)


@pytest.mark.slow
def test_words_are_learnt(tmp_path: Path) -> None:
    """Three tones in voices and orders that were never heard."""
    place = folder(tmp_path / "in", n=300, speakers=12)
    config = tiny_speech(
        place,
        "optim.name=muon",
        "optim.lr=0.01",
        "batch.rows=32",
        "batch.micro_rows=null",
        "data.held_out=0.15",
        steps=150,
    )
    done = train(config, out=tmp_path / "run", quiet=True)
    assert done.report is not None and done.report["word_error_rate"] < 0.05


def test_the_recipe_is_of_one_piece() -> None:
    """What it hears fits the model's positions; the model is small enough to ship."""
    config = recipe("speech_numbers")
    assert isinstance(config.model, ModelConfig) and isinstance(config.data, SoundsConfig)
    made = config.model.config
    assert made.encoder is not None and made.decoder is not None and config.data.spectrogram is not None
    front, places = made.encoder.embed.front, made.encoder.embed.positions
    assert isinstance(front, FramesConfig) and isinstance(places, LearnedPositions)
    heard = config.data.spectrogram
    assert places.n * 2 == heard.seconds * heard.rate // heard.hop
    assert config.batch.length == made.context
    with torch.device("meta"):
        assert sum(p.numel() for p in build(made).parameters()) < 1.5e6
