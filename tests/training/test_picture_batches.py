"""Batches of pictures: what is held out, in which order the rest comes, how it is changed, and for which models."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from clearhead.config import LabelHeadConfig
from clearhead.errors import ClearheadError, UsageError
from clearhead.inputs.images import ImageProcessor, Resize
from clearhead.training.config import ObjectiveConfig, PicturesConfig, TrainConfig
from clearhead.training.data.picture_batches import PictureBatches, mean_and_std, moved, split_pictures
from clearhead.training.data.pictures import PictureStore
from clearhead.training.models import decoder
from clearhead.training.prepare_pictures import labels, prepare_pictures
from tests.training.pictures import arrays, tiny_vit
from tests.training.samples import tiny


def store_of(names: list[str], apart: list[bool] | None = None) -> PictureStore:
    """Pictures whose every pixel is their number."""
    pixels = np.repeat(np.arange(len(names), dtype=np.uint8), 16).reshape(-1, 4, 4, 1)
    return PictureStore(pixels, tuple(names), None, None if apart is None else np.array(apart), "hash")


def batches_of(store: PictureStore, rows: int = 4, **data: Any) -> PictureBatches:
    """Batches whose pixels are the pictures' numbers."""
    config = PicturesConfig(path="", **data)
    processor = ImageProcessor(resize=Resize(size=(4, 4)), scale=1.0, mean=(0.0,), std=(1.0,))
    return PictureBatches(store, labels(store), processor, config, rows=rows, split=split_pictures(store, config))


def numbers(batches: PictureBatches, step: int) -> list[int]:
    return [int(n) for n in batches.step(step).inputs["pixels"][:, 0, 0, 0]]


# ---- what is held out


@pytest.mark.parametrize("share", [0.2, 0.25, 0.5])
def test_of_each_label_the_same_share_is_held_out(share: float) -> None:
    names = ["a"] * 40 + ["b"] * 20 + ["c"] * 100
    learnt, held = split_pictures(store_of(names), PicturesConfig(path="", held_out=share, seed=3))
    assert sorted([*learnt, *held]) == list(range(160))
    assert Counter(names[i] for i in held) == {"a": 40 * share, "b": 20 * share, "c": 100 * share}
    assert held.tolist() != list(range(len(held)))
    again, other = (split_pictures(store_of(names), PicturesConfig(path="", held_out=share, seed=s))[1] for s in (3, 4))
    assert np.array_equal(again, held) and not np.array_equal(other, held)


def test_shares_that_are_no_whole_pictures_are_rounded() -> None:
    names = ["a"] * 7 + ["b"] * 8 + ["c"]
    _, held = split_pictures(store_of(names), PicturesConfig(path="", held_out=0.2))
    assert Counter(names[i] for i in held) == {"a": 1, "b": 2}


def test_the_last_are_held_out() -> None:
    learnt, held = split_pictures(store_of(["a"] * 9 + ["b"] * 9), PicturesConfig(path="", held_out=0.2, split="last"))
    assert learnt.tolist() == list(range(14)) and held.tolist() == [14, 15, 16, 17]


def test_what_the_data_keeps_apart_is_held_out() -> None:
    store = store_of(["a"] * 4, [True, False, False, True])
    learnt, held = split_pictures(store, PicturesConfig(path="", held_out=0.9, split="own"))
    assert learnt.tolist() == [1, 2] and held.tolist() == [0, 3]


@pytest.mark.parametrize("split", ["labels", "last"])
def test_a_validation_split_is_of_the_rest_and_what_is_held_out_is_touched_by_nothing(split: Any) -> None:
    names = ["a", "b"] * 50
    data = PicturesConfig(path="", held_out=0.2, split=split)
    learnt, held = split_pictures(store_of(names), data)
    fitted, validated = split_pictures(store_of(names), replace(data, validation=0.25))
    assert sorted([*fitted, *validated]) == learnt.tolist()
    assert Counter(names[i] for i in validated) == {"a": 10, "b": 10}
    assert not {*held} & {*fitted, *validated}


def test_splits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match=r"data.split is own, and the data keeps no pictures apart"):
        split_pictures(store_of(["a"] * 4), PicturesConfig(path="", split="own"))
    with pytest.raises(UsageError, match="all 2 pictures are held out"):
        split_pictures(store_of(["a"] * 2, [True, True]), PicturesConfig(path="", split="own"))
    for name in ("held_out", "validation"):
        with pytest.raises(UsageError, match=f"data.{name} is 1"):
            PicturesConfig(path="", **{name: 1.0})


# ---- the order


def test_an_epoch_is_every_picture_once_and_each_has_another_order() -> None:
    batches = batches_of(store_of(["a", "b"] * 10), rows=3, held_out=0.0)
    flat = [n for step in range(20) for n in numbers(batches, step)]
    epochs = [flat[i : i + 20] for i in (0, 20, 40)]
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert epochs[0] != epochs[1] and epochs[1] != epochs[2]


def test_a_step_depends_on_its_number_alone() -> None:
    store = store_of(["a", "b"] * 10)
    first, other = (batches_of(store, held_out=0.2, shift=1, flip=True) for _ in range(2))
    straight = [first.step(i) for i in range(12)]
    for i in (11, 3, 0, 7, 7):
        again = other.step(i)
        assert torch.equal(again.inputs["pixels"], straight[i].inputs["pixels"])
        assert torch.equal(again.targets, straight[i].targets)
    assert numbers(batches_of(store, held_out=0.2, seed=1), 0) != numbers(batches_of(store, held_out=0.2), 0)
    with pytest.raises(UsageError, match="there is no step -1"):
        first.step(-1)


def test_held_out_pictures_come_once_mixed_and_unchanged() -> None:
    """Mixed, because a run measures only the first few batches of them while it goes."""
    names = ["a"] * 40 + ["b"] * 40
    batches = batches_of(store_of(names), rows=16, held_out=0.5, shift=2, flip=True)
    found = list(batches.held_out())
    pixels = torch.cat([batch.inputs["pixels"] for batch in found])
    assert torch.equal(pixels, pixels[:, :, :1, :1].expand_as(pixels))
    held = [int(n) for n in pixels[:, 0, 0, 0]]
    assert sorted(held) == split_pictures(store_of(names), batches.data)[1].tolist()
    assert [names[n] for n in held] == [batches.labels[int(t)] for batch in found for t in batch.targets]
    assert set(found[0].targets.tolist()) == {0, 1}


# ---- how pictures are changed


def pixels(n: int = 1000, height: int = 6, width: int = 5) -> NDArray[np.uint8]:
    """Pictures of which every pixel has another number."""
    return np.tile(np.arange(height * width * 2, dtype=np.uint8).reshape(1, height, width, 2), (n, 1, 1, 1))


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("shift", [0, 2])
def test_pictures_are_moved_as_pillow_would_and_alike_often(shift: int, flip: bool) -> None:
    """Each is one of the pictures that padding by repeated edges and cropping give, mirrored or not."""
    given = pixels()
    found = moved(given, np.random.default_rng(0), shift, flip)
    padded = np.pad(given[0], ((shift, shift), (shift, shift), (0, 0)), mode="edge")
    crops = [
        padded[down : down + 6, across : across + 5] for down in range(2 * shift + 1) for across in range(2 * shift + 1)
    ]
    possible = [crop[:, ::way] for crop in crops for way in ((1, -1) if flip else (1,))]
    seen = Counter(next(i for i, one in enumerate(possible) if np.array_equal(one, got)) for got in found)
    assert len(seen) == len(possible)
    most = 1000 / len(possible)
    assert max(seen.values()) < most + 5 * most**0.5 + 1


def test_only_training_changes_pictures(tmp_path: Path) -> None:
    """With the movements off, the same pictures are learnt from as they are."""
    config = tiny_vit(arrays(tmp_path / "a.npz"))
    still = replace(config, data=replace(config.data, shift=0, flip=False))
    moving, plain = (prepared(one, tmp_path).batches for one in (config, still))
    for a, b in zip(moving.held_out(), plain.held_out(), strict=True):
        assert torch.equal(a.inputs["pixels"], b.inputs["pixels"])
    a, b = moving.step(0), plain.step(0)
    assert torch.equal(a.targets, b.targets) and not torch.equal(a.inputs["pixels"], b.inputs["pixels"])


# ---- what the model reads


def prepared(config: TrainConfig, tmp_path: Path) -> Any:
    assert isinstance(config.data, PicturesConfig)
    return prepare_pictures(config, config.data, tmp_path / "data", quiet=True)


@pytest.mark.parametrize("channels", [1, 3])
def test_batches_hold_what_the_processor_makes_of_pictures(channels: int, tmp_path: Path) -> None:
    """To the last bit, so that a model reads a file as it read it in training."""
    images = np.random.default_rng(1).integers(0, 256, (24, 8, 8, 3)).astype(np.uint8)
    config = tiny_vit(arrays(tmp_path / "a.npz", images=images), channels=channels)
    found = prepared(replace(config, data=replace(config.data, shift=0, flip=False)), tmp_path)
    batches = found.batches
    batch = batches.step(0)
    assert batch.inputs["pixels"].dtype == torch.float32 and batch.targets.dtype == torch.int64
    assert batch.inputs["pixels"].shape == (4, channels, 8, 8)
    learnt, _ = split_pictures(batches.store, batches.data)
    pixels_of_all = batches.processor(list(images))
    for row, target in zip(batch.inputs["pixels"], batch.targets, strict=True):
        (which,) = [i for i in learnt if torch.equal(pixels_of_all[i], row)]
        assert int(target) == which % 3


def test_mean_and_deviation_are_of_the_pictures_that_are_learnt_from() -> None:
    images = np.random.default_rng(2).integers(0, 256, (1500, 3, 4, 3)).astype(np.uint8)
    images[..., 2] = 128
    which = np.arange(0, 1500, 1)[np.arange(1500) % 5 > 0]
    mean, std = mean_and_std(images, which)
    real = images[which] / 255
    assert mean == pytest.approx(real.mean(axis=(0, 1, 2)), abs=6e-5)
    assert std[:2] == pytest.approx(real.std(axis=(0, 1, 2))[:2], abs=6e-5)
    assert std[2] == 1.0


def test_labels_are_in_the_order_of_numbers_or_of_the_alphabet() -> None:
    assert labels(store_of(["10", "9", "2", "9"])).labels == ("2", "9", "10")
    assert labels(store_of(["b", "a", "10"])).labels == ("10", "a", "b")
    found = labels(store_of(["b", "a"]), ("b", "c", "a"))
    assert found.labels == ("b", "c", "a") and found.targets_N.tolist() == [0, 2]
    with pytest.raises(ClearheadError, match="a picture is labelled 'a', which is none of 'b', 'c'"):
        labels(store_of(["b", "a"]), ("b", "c"))


# ---- what goes together


def test_a_model_of_other_pictures_or_labels_is_refused_by_name(tmp_path: Path) -> None:
    config = tiny_vit(arrays(tmp_path / "a.npz"))
    batches = prepared(config, tmp_path).batches
    ours: Any = config.model
    batches.check(ours.config)

    def refused(words: str, **front: Any) -> None:
        stack = ours.config.encoder
        embed = replace(stack.embed, front=replace(stack.embed.front, **front))
        with pytest.raises(ClearheadError, match=words):
            batches.check(replace(ours.config, encoder=replace(stack, embed=embed)))

    refused("pictures have 1 channels, and the model reads 3", channels=3)
    refused("pictures are prepared as 8 x 8 pixels, and the model is for 8 x 12", image=(8, 12))
    heads = replace(ours.config.heads, labels=(("classes", LabelHeadConfig(n_labels=4)),))
    with pytest.raises(ClearheadError, match=r"the data has 3 labels, and no head .* as many \(classes has 4\)"):
        batches.check(replace(ours.config, heads=heads))
    sizes: Any = tiny().model
    with pytest.raises(ClearheadError, match="this model reads none"):
        batches.check(decoder(sizes, 31, 12))


def test_settings_that_do_not_go_together_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    config = tiny_vit("nowhere")
    with pytest.raises(UsageError, match=r"objective.name is next_token, and pictures are labelled"):
        prepared(replace(config, objective=ObjectiveConfig()), tmp_path)
    with pytest.raises(ClearheadError, match="this model reads none"):
        prepared(replace(config, model=tiny().model), tmp_path)
    with pytest.raises(ClearheadError, match="the model reads 4 channels"):
        prepared(tiny_vit("nowhere", channels=4), tmp_path)


def test_a_run_goes_on_only_with_the_same_pictures(tmp_path: Path) -> None:
    config = tiny_vit(arrays(tmp_path / "a.npz"))
    described = prepared(config, tmp_path).batches.describe()
    assert described == prepared(config, tmp_path).batches.describe()
    assert described["learnt"] == 18 and described["held_out"] == 6 and described["labels"] == ["0", "1", "2"]
    arrays(tmp_path / "a.npz", images=np.zeros((24, 8, 8), np.uint8))
    other = prepared(config, tmp_path).batches.describe()
    assert {name for name in described if described[name] != other[name]} == {"hash", "processor"}
