"""Whole runs on pictures: what they leave behind, how they go on, and what is measured."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import clearhead
from clearhead.errors import ClearheadError
from clearhead.inputs.images import ImageProcessor
from clearhead.training import checkpoint
from clearhead.training.config import EveryConfig, ObjectiveConfig, PicturesConfig, RunConfig, StartConfig
from clearhead.training.corpora import fashion, located
from clearhead.training.data.pictures import find_pictures
from clearhead.training.evaluate import evaluate_run
from clearhead.training.measures.labels import measure_labels
from clearhead.training.prepare import prepare
from clearhead.training.recipes import recipe
from clearhead.training.run import train
from tests.oracles import close
from tests.training.pictures import arrays, folders, tiny_vit

NAMES = np.array(["dark", "grey", "light"])


def test_a_checkpoint_is_read_by_transformers_alike(tmp_path: Path) -> None:
    """The folder alone says how a file becomes pixels, and what the labels are called."""
    from transformers import AutoImageProcessor, ViTForImageClassification

    path = arrays(tmp_path / "a.npz", names=NAMES)
    done = train(tiny_vit(path), out=tmp_path / "run", quiet=True)
    assert done.checkpoint is not None
    theirs = ViTForImageClassification.from_pretrained(done.checkpoint).eval()
    assert theirs.config.id2label == {0: "dark", 1: "grey", 2: "light"}
    assert theirs.config.label2id == {"dark": 0, "grey": 1, "light": 2}
    ours = clearhead.load(done.checkpoint)
    grey = Image.fromarray(np.random.default_rng(0).integers(0, 256, (21, 13)).astype(np.uint8))
    pixels = AutoImageProcessor.from_pretrained(done.checkpoint)(grey, return_tensors="pt")["pixel_values"]
    assert torch.equal(ImageProcessor.from_folder(done.checkpoint)(grey), pixels)
    with torch.no_grad():
        logits = theirs(pixels).logits
        assert close(ours(pixels=pixels), logits)
        # The same loss as was measured in the run.
        held = list(prepare(tiny_vit(path), tmp_path / "run", quiet=True).batches.held_out())
        losses = [theirs(batch.inputs["pixels"], labels=batch.targets).loss * len(batch.targets) for batch in held]
    assert done.report is not None
    assert float(sum(losses)) / 6 == pytest.approx(done.report["loss"], rel=1e-5)


def test_a_run_in_colour_from_folders(tmp_path: Path) -> None:
    folder = folders(tmp_path / "in", {"cat": 8, "dog": 8}, size=(12, 20))
    done = train(tiny_vit(str(folder), channels=3, n_labels=2), out=tmp_path / "run", quiet=True)
    assert done.checkpoint is not None and done.report is not None
    said = json.loads((done.checkpoint / "config.json").read_text())
    assert said["id2label"] == {"0": "cat", "1": "dog"} and said["num_channels"] == 3
    assert done.report["labelled"] == 4 and {*done.report["accuracy_by_label"]} == {"cat", "dog"}
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    assert [line["step"] for line in lines if "held_out_loss" in line] == [3, 6]


def test_a_run_on_pictures_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """Nine pictures, four a step: stopped in the second epoch, with dropout, movements and micro-batches."""
    config = tiny_vit(arrays(tmp_path / "a.npz", 12))
    config = replace(config, every=replace(config.every, save=4, keep=9))
    train(config, out=tmp_path / "straight", quiet=True)
    shutil.copytree(tmp_path / "straight" / "step-000004", tmp_path / "resumed" / "step-000004")
    train(config, out=tmp_path / "resumed", resume=True, quiet=True)
    states = [checkpoint.read_state(tmp_path / name / "step-000006") for name in ("straight", "resumed")]
    weights = [clearhead.load(tmp_path / name / "step-000006").state_dict() for name in ("straight", "resumed")]
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name
    assert torch.equal(states[0]["random"]["torch"], states[1]["random"]["torch"])
    for a, b in zip(*(state["optimiser"]["state"].values() for state in states), strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_other_pictures_are_another_run(tmp_path: Path) -> None:
    config = tiny_vit(arrays(tmp_path / "a.npz"))
    config = replace(config, run=RunConfig(steps=2))
    train(config, out=tmp_path / "run", quiet=True)
    arrays(tmp_path / "a.npz", images=np.ones((24, 8, 8), np.uint8))
    with pytest.raises(ClearheadError, match="is a checkpoint of a run on other data: hash is"):
        train(replace(config, run=RunConfig(steps=4)), out=tmp_path / "run", resume=True, quiet=True)


def test_pictures_are_learnt(tmp_path: Path) -> None:
    """How bright a picture is, is easy to see; and a checkpoint is measured as at the end of its run."""
    config = tiny_vit(arrays(tmp_path / "a.npz", 60, names=NAMES))
    config = replace(config, run=RunConfig(steps=60), every=EveryConfig(evaluate=0, save=0))
    done = train(config, out=tmp_path / "run", quiet=True)
    assert done.report is not None and done.checkpoint is not None
    assert done.report["accuracy"] == 1.0 and done.report["labelled"] == 15
    assert done.report["accuracy_by_label"] == {"dark": 1.0, "grey": 1.0, "light": 1.0}
    found: Any = evaluate_run(clearhead.load(done.checkpoint), done.checkpoint)
    assert found == {name: done.report[name] for name in found} and found["accuracy"] == 1.0


def test_the_accuracy_of_each_label_is_that_of_scikit_learn(tmp_path: Path) -> None:
    """Its recall, and its accuracy, of a model that is mostly wrong."""
    from sklearn.metrics import accuracy_score, recall_score

    config = tiny_vit(arrays(tmp_path / "a.npz", 60))
    prepared = prepare(config, tmp_path / "run", quiet=True)
    done = train(replace(config, run=RunConfig(steps=1)), out=tmp_path / "run", quiet=True)
    held = list(prepared.batches.held_out())
    with torch.no_grad():
        said = torch.cat([done.model(**batch.inputs).argmax(dim=-1) for batch in held])
    true = torch.cat([batch.targets for batch in held])
    scores = measure_labels(done.model, held)
    assert scores.accuracy == pytest.approx(accuracy_score(true, said))
    assert [*scores.by_label("abc").values()] == pytest.approx(recall_score(true, said, average=None, zero_division=0))


def test_values_of_pictures(tmp_path: Path) -> None:
    """How bright each is, as a number: what a straight line through the mean of its pixels would tell."""
    images = np.random.default_rng(3).integers(0, 40, (60, 8, 8)) + np.linspace(0, 200, 60)[:, None, None]
    images = images.astype(np.uint8)
    path = arrays(tmp_path / "a.npz", 60, images=images, labels=images.mean(axis=(1, 2)) / 128 - 1)
    config = tiny_vit(path, n_labels=1, objective=ObjectiveConfig(name="regress"))
    config = replace(config, run=RunConfig(steps=60), every=EveryConfig(evaluate=0, save=0))
    done = train(config, out=tmp_path / "run", quiet=True)
    assert done.report is not None
    assert done.report["values"] == 15 and done.report["correlation"] > 0.9
    with pytest.raises(ClearheadError, match="a picture is labelled 'x', which is no number"):
        train(replace(config, data=PicturesConfig(path=arrays(tmp_path / "b.npz", 2, labels=np.array(["1", "x"])))))


def test_a_run_goes_on_from_a_model_with_its_own_processor_and_labels(tmp_path: Path) -> None:
    path = arrays(tmp_path / "a.npz", names=NAMES)
    first = train(tiny_vit(path), out=tmp_path / "first", quiet=True)
    # The same three labels in another order, and pictures of another size.
    folder = folders(tmp_path / "in", {"light": 4, "dark": 4, "grey": 4}, size=(10, 10))
    start = StartConfig(source=str(first.checkpoint))
    second = train(replace(tiny_vit(str(folder)), model=start), out=tmp_path / "second", quiet=True)
    assert first.checkpoint is not None and second.checkpoint is not None
    name = "preprocessor_config.json"
    assert (first.checkpoint / name).read_bytes() == (second.checkpoint / name).read_bytes()
    said = json.loads((second.checkpoint / "config.json").read_text())
    assert said["id2label"] == {"0": "dark", "1": "grey", "2": "light"}


def test_nothing_held_out_is_nothing_measured(tmp_path: Path) -> None:
    config = tiny_vit(arrays(tmp_path / "a.npz", 12))
    config = replace(config, data=replace(config.data, held_out=0.0), run=RunConfig(steps=1))
    done = train(config, out=tmp_path / "run", quiet=True)
    assert done.report is not None and "accuracy" not in done.report


# ---- the data of the recipes


def test_digits_are_scikit_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.datasets import load_digits

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = find_pictures(located("corpus:digits"))
    assert found.apart is None and [int(label) for label in found.labels] == load_digits().target.tolist()
    images: Any = found.arrays["images"]  # type: ignore[attr-defined]
    assert np.array_equal(np.rint(images * (16 / 255)), load_digits().images)
    assert images.min() == 0 and images.max() == 255


def test_without_scikit_learn_there_are_no_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ClearheadError, match="the digits come with scikit-learn"):
        located("corpus:digits")
    assert not list(tmp_path.rglob("*digits*"))


def idx(array: Any) -> bytes:
    """An array of bytes as MNIST's files have it."""
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return gzip.compress(head + array.tobytes())


def clothes(folder: Path, n_train: int = 40, n_test: int = 20) -> dict[str, Any]:
    """The files of dataset-fashion-mnist, of few pictures."""
    random, arrays = np.random.default_rng(0), {}
    folder.mkdir()
    for begins, n in (("train", n_train), ("t10k", n_test)):
        arrays[f"{begins}-images-idx3-ubyte"] = random.integers(0, 256, (n, 28, 28)).astype(np.uint8)
        arrays[f"{begins}-labels-idx1-ubyte"] = (np.arange(n) % 10).astype(np.uint8)
    for name, array in arrays.items():
        (folder / f"{name}.gz").write_bytes(idx(array))
    return arrays


def test_clothes_are_split_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fashion, "PLACE", tmp_path / "in")
    made = clothes(tmp_path / "in")
    config: Any = recipe("vit_fashion")
    batches: Any = prepare(config, tmp_path / "run", quiet=True).batches
    assert (batches.n_rows, batches.n_held_out) == (40, 20)
    assert batches.labels[0] == "T-shirt/top" and batches.labels[9] == "Ankle boot" and len(batches.labels) == 10
    whole = np.concatenate([made["train-images-idx3-ubyte"], made["t10k-images-idx3-ubyte"]])
    assert np.array_equal(batches.store.pixels_NHWC[..., 0], whole)
    held = torch.cat([batch.targets for batch in batches.held_out()])
    assert sorted(held.tolist()) == sorted(made["t10k-labels-idx1-ubyte"].tolist())
    assert batches.processor.mean == pytest.approx((whole[:40].mean() / 255,), abs=6e-5)


def test_without_the_package_of_clothes_its_name_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fashion, "PLACE", tmp_path / "in")
    with pytest.raises(ClearheadError, match="apt-get install dataset-fashion-mnist"):
        located("corpus:fashion")
    clothes(tmp_path / "in")
    for content in (b"hello", gzip.compress(b"\1\0\10\1\0\0\0\0"), gzip.compress(b"\0\0\10\1\0\0\0\5ab"), b""):
        (tmp_path / "in" / "t10k-labels-idx1-ubyte.gz").write_bytes(content)
        with pytest.raises(ClearheadError, match=r"t10k-labels-idx1-ubyte.gz can't be read .*apt-get install"):
            located("corpus:fashion")
    assert not list((tmp_path / "cache").rglob("*.npz"))


# ---- the recipes


@pytest.mark.parametrize(("name", "most"), [("vit_digits", 300_000), ("vit_fashion", 600_000)])
def test_the_models_of_the_recipes_are_small_and_published_ones(name: str, most: int) -> None:
    from transformers import ViTConfig, ViTForImageClassification

    from clearhead.families import FAMILIES
    from clearhead.model.build import build

    config: Any = recipe(name)
    model = build(config.model.config)
    theirs = ViTForImageClassification(ViTConfig(**FAMILIES[config.model.family].write(model.config, {})))
    n = sum(p.numel() for p in model.parameters())
    assert n == sum(p.numel() for p in theirs.parameters()) < most


@pytest.mark.slow
def test_digits_in_a_short_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the recipe's steps: well on the way."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = train("vit_digits", settings=("run.steps=250",), out=tmp_path / "run", quiet=True)
    assert done.report is not None and done.report["labelled"] == 359
    assert done.report["accuracy"] > 0.85
