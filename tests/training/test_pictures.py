"""Pictures read into an array: from folders and from arrays, once, and what is said of those that can't be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from clearhead.errors import ClearheadError
from clearhead.inputs.images import ImageProcessor, Resize
from clearhead.training.data import pictures
from clearhead.training.data.pictures import PictureStore, store_pictures
from tests.training.pictures import arrays, folders


def fitting(size: tuple[int, int] = (8, 8), channels: int = 3) -> ImageProcessor:
    return ImageProcessor(resize=Resize(size=size), mean=(0.5,) * channels, std=(0.5,) * channels)


def stored(path: Any, tmp_path: Path, processor: ImageProcessor | None = None) -> PictureStore:
    return store_pictures(Path(path), processor or fitting(), tmp_path / "stored", progress=False)


# ---- what is read


def test_folders_are_labels_and_files_keep_their_order(tmp_path: Path) -> None:
    folder = folders(tmp_path / "in", {"dog": 2, "cat": 3})
    (folder / "cat" / "deep").mkdir()
    (folder / "cat" / "001.png").rename(folder / "cat" / "deep" / "z.PNG")
    (folder / "README.md").write_text("what this is")
    (folder / ".hidden").mkdir()
    found = stored(folder, tmp_path)
    assert found.labels == ("cat", "cat", "cat", "dog", "dog")
    assert found.pixels_NHWC.dtype == np.uint8 and found.apart_N is None and found.names is None
    files = ["cat/000.png", "cat/002.png", "cat/deep/z.PNG", "dog/000.png", "dog/001.png"]
    expected = np.stack([np.asarray(Image.open(folder / name)) for name in files])
    assert np.array_equal(found.pixels_NHWC, expected)


def test_pictures_of_any_size_and_kind_are_made_what_the_processor_makes_of_them(tmp_path: Path) -> None:
    """As pillow resizes them, which the published processors do too."""
    folder = folders(tmp_path / "in", {"a": 2}, size=(30, 20))
    folders(folder / "x", {"b": 1}, size=(5, 9), mode="L")
    (folder / "x" / "b").rename(folder / "b")
    (folder / "x").rmdir()
    for channels, mode in ((3, "RGB"), (1, "L")):
        found = stored(folder, tmp_path, fitting((6, 7), channels))
        assert found.pixels_NHWC.shape == (3, 6, 7, channels)
        for i, name in enumerate(("a/000.png", "a/001.png", "b/000.png")):
            expected = Image.open(folder / name).convert(mode).resize((7, 6), Image.Resampling.BILINEAR)
            assert np.array_equal(found.pixels_NHWC[i].squeeze(), np.asarray(expected).squeeze()), name


def test_folders_that_are_split_already(tmp_path: Path) -> None:
    folders(tmp_path / "in" / "test", {"a": 1, "b": 2})
    folders(tmp_path / "in" / "train", {"a": 3, "b": 2})
    found = stored(tmp_path / "in", tmp_path)
    assert found.labels == ("a", "a", "a", "b", "b", "a", "b", "b")
    assert found.apart_N is not None
    assert found.apart_N.tolist() == [False] * 5 + [True] * 3


def test_arrays_in_bytes_are_taken_as_they_are(tmp_path: Path) -> None:
    path = arrays(tmp_path / "a.npz", names=np.array(["dark", "grey", "light"]), split=np.array(["train", "test"] * 12))
    found = stored(path, tmp_path, fitting(channels=1))
    with np.load(path) as file:
        assert np.array_equal(found.pixels_NHWC[..., 0], file["images"])
    assert found.labels == ("dark", "grey", "light") * 8
    assert found.names == ("dark", "grey", "light")
    assert found.apart_N is not None and found.apart_N.tolist() == [False, True] * 12


@pytest.mark.parametrize("kind", ["real", "colour", "larger"])
def test_other_arrays_are_made_bytes_of_the_right_size(kind: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    images: Any = random.integers(0, 256, (3, 8, 8) if kind == "real" else (3, 8, 8, 3)).astype(np.uint8)
    path = arrays(tmp_path / "a.npz", 3, images=images / 255 if kind == "real" else images)
    size, channels = ((4, 4) if kind == "larger" else (8, 8)), 1 if kind == "real" else 3
    found = stored(path, tmp_path, fitting(size, channels))
    expected = [Image.fromarray(one).resize(size[::-1], Image.Resampling.BILINEAR) for one in images]
    assert np.array_equal(found.pixels_NHWC.squeeze(), np.stack([np.asarray(one) for one in expected]))


# ---- once


def test_what_was_read_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folders(tmp_path / "in", {"a": 2, "b": 2})
    first = stored(folder, tmp_path)
    read = pictures.open_image
    monkeypatch.setattr(pictures, "open_image", None)
    again = stored(folder, tmp_path)
    assert again.hash == first.hash and np.array_equal(again.pixels_NHWC, first.pixels_NHWC)
    monkeypatch.setattr(pictures, "open_image", read)
    hashes = {
        first.hash,
        stored(folder, tmp_path, fitting((4, 4))).hash,
        stored(folder, tmp_path, fitting((8, 8), 1)).hash,
    }
    Image.new("RGB", (8, 8)).save(folder / "a" / "000.png")
    hashes.add(stored(folder, tmp_path).hash)
    (folder / "a").rename(folder / "c")
    assert len({*hashes, stored(folder, tmp_path).hash}) == 5


def test_more_pictures_than_a_thread_reads_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = stored(folders(tmp_path / "in", {"a": 7, "b": 4}), tmp_path)
    monkeypatch.setattr(pictures, "AT_ONCE", 3)
    in_parts = store_pictures(tmp_path / "in", fitting(), tmp_path / "parts", progress=False)
    assert np.array_equal(whole.pixels_NHWC, in_parts.pixels_NHWC)


def test_a_store_that_was_broken_says_how_to_mend_it(tmp_path: Path) -> None:
    folder = folders(tmp_path / "in", {"a": 2})
    stored(folder, tmp_path)
    (inside,) = (tmp_path / "stored").glob("pictures-*")
    (inside / "pixels.npy").write_bytes(b"")
    with pytest.raises(ClearheadError, match="delete it"):
        stored(folder, tmp_path)


# ---- what is refused


def test_pictures_that_can_not_be_read_are_all_named_and_nothing_is_left(tmp_path: Path) -> None:
    folder = folders(tmp_path / "in", {"a": 3, "b": 2})
    content = (folder / "a" / "001.png").read_bytes()
    (folder / "a" / "001.png").write_bytes(content[: len(content) // 2])
    (folder / "b" / "000.png").write_bytes(b"no picture")
    with pytest.raises(ClearheadError, match=r"001.png can't be read.*b/000.png can't be read.*mend or remove"):
        stored(folder, tmp_path)
    assert not list((tmp_path / "stored").glob("*pictures-*"))


def broken(folder: Path, kind: str) -> Path:
    """Data with one thing wrong with it."""
    folder.mkdir()
    match kind:
        case "no folder":
            return folder / "nowhere"
        case "empty":
            return folder
        case "no label":
            Image.new("L", (8, 8)).save(folders(folder / "x", {"a": 1}) / "b.png")
            return folder / "x"
        case "empty label":
            (folders(folder / "x", {"a": 1}) / "b").mkdir()
            return folder / "x"
        case "a text":
            (folder / "a.txt").write_text("hello")
            return folder / "a.txt"
        case "no zip":
            (folder / "a.npz").write_bytes(b"hello")
            return folder / "a.npz"
    n = 4
    changes: dict[str, dict[str, Any]] = {
        "no images": {"images": np.zeros((0, 8, 8), np.uint8)},
        "two dimensions": {"images": np.zeros((n, 8), np.uint8)},
        "few labels": {"labels": np.zeros(n - 1, np.int64)},
        "few names": {"names": np.array(["a", "b"])},
        "odd split": {"split": np.array(["train", "later", "test", "test"])},
        "loud": {"images": np.full((n, 8, 8), 2.0)},
    }
    if kind == "no labels":
        np.savez(folder / "a.npz", images=np.zeros((n, 8, 8)))
    else:
        arrays(folder / "a.npz", n, **changes[kind])
    return folder / "a.npz"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("no folder", "there is no folder or file .*nowhere"),
        ("empty", "has no pictures in it; put them in one folder a label"),
        ("no label", "b.png is in no folder that says what it is of"),
        ("empty label", "b has no pictures in it"),
        ("a text", "a.txt is no folder of pictures, and no .npz file"),
        ("no zip", "a.npz can't be read as arrays"),
        ("no labels", "no array 'labels'; there are images"),
        ("no images", r"images has shape \(0, 8, 8\)"),
        ("two dimensions", r"images has shape \(4, 8\)"),
        ("few labels", r"labels has shape \(3,\), and there are 4 images"),
        ("few names", "a label is 2, and there are 2 names"),
        ("odd split", "split is 'later'; 'train' or 'test' is expected"),
        ("loud", "in images 0 to 3: a picture of real numbers must be from 0 to 1"),
    ],
)
def test_what_is_no_data_is_refused_by_name(kind: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ClearheadError, match=words):
        stored(broken(tmp_path / "in", kind), tmp_path)


def test_an_index_is_written_for_people_too(tmp_path: Path) -> None:
    found = stored(folders(tmp_path / "in", {"a": 1}), tmp_path)
    (path,) = (tmp_path / "stored").glob("pictures-*/index.json")
    assert json.loads(path.read_text()) == {"hash": found.hash, "names": None, "apart": None}
    assert path.parent.name == f"pictures-{found.hash[:16]}"
