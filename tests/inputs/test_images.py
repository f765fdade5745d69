"""Pictures prepared as the published processors do it, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from clearhead.errors import ClearheadError
from clearhead.inputs.images import ImageProcessor
from clearhead.inputs.open_image import open_image

PUBLISHED = {"vit": ViTImageProcessorPil, "deit": DeiTImageProcessorPil, "clip": CLIPImageProcessorPil}
SHAPES = [(300, 400), (401, 233), (50, 61), (224, 224), (256, 700), (31, 8)]
ODD = {
    "none": {"do_resize": False, "do_center_crop": False, "do_rescale": False, "do_normalize": False},
    "only_normal": {"do_rescale": False},
    "not_normal": {"do_normalize": False, "rescale_factor": 1 / 127.5},
    "odd_crop": {"crop_size": {"height": 61, "width": 99}, "do_center_crop": True},
    "small": {"size": {"height": 30, "width": 17}, "resample": 1, "image_mean": [0.1, 0.2, 0.3]},
    "lanczos": {"size": {"shortest_edge": 37}, "resample": 1},
    "one_mean": {"image_mean": [0.4] * 3, "image_std": [0.3, 0.2, 0.1]},
}


def picture(height: int, width: int, channels: int = 3, seed: int = 0) -> Image.Image:
    """Noise over a gradient, so that both fine and coarse parts count."""
    random = np.random.default_rng(seed)
    slope = np.linspace(0, 200, width)[None, :, None] * np.linspace(0.2, 1, height)[:, None, None]
    noise = random.integers(0, 56, (height, width, channels))
    array = (slope + noise).astype(np.uint8)
    return Image.fromarray(array)


def theirs(processor, *pictures):
    return processor(list(pictures), return_tensors="pt")["pixel_values"]


@pytest.mark.parametrize("shape", SHAPES, ids="{0[0]}x{0[1]}".format)
@pytest.mark.parametrize("kind", PUBLISHED)
def test_the_published_defaults(kind, shape, tmp_path):
    processor = PUBLISHED[kind]()
    processor.save_pretrained(tmp_path)
    ours = ImageProcessor.from_folder(tmp_path)
    assert torch.equal(ours(picture(*shape)), theirs(processor, picture(*shape)))


@pytest.mark.parametrize("shape", SHAPES, ids="{0[0]}x{0[1]}".format)
@pytest.mark.parametrize("changes", ODD)
def test_every_step_can_be_changed(changes, shape, tmp_path):
    processor = CLIPImageProcessorPil(**ODD[changes])
    processor.save_pretrained(tmp_path)
    expected = theirs(processor, picture(*shape)).float()
    assert torch.equal(ImageProcessor.from_folder(tmp_path)(picture(*shape)), expected)


OLD = {"do_normalize": True, "do_resize": True, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (
            "clip",
            {"feature_extractor_type": "CLIPFeatureExtractor", "size": 40, "crop_size": 33, "do_center_crop": True},
            {"size": {"shortest_edge": 40}, "crop_size": {"height": 33, "width": 33}},
        ),
        ("vit", {"size": 50, "feature_extractor_type": "ViTFeatureExtractor"}, {"size": {"height": 50, "width": 50}}),
        ("vit", {"size": 50}, {"size": {"height": 50, "width": 50}}),
        (
            "deit",
            {"feature_extractor_type": "DeiTFeatureExtractor", "size": 60, "crop_size": 48, "do_center_crop": True},
            {"size": {"height": 60, "width": 60}, "crop_size": {"height": 48, "width": 48}},
        ),
    ],
)
def test_the_older_spelling_of_the_file(kind, old, new, tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**OLD, "resample": 3, **old}))
    expected = theirs(PUBLISHED[kind](**{**OLD, "resample": 3, **new}), picture(90, 120))
    assert torch.equal(ImageProcessor.from_folder(tmp_path)(picture(90, 120)), expected)


def test_inside_a_processor_config(tmp_path):
    raw = {"image_processor": {"image_processor_type": "ViTImageProcessorFast", "size": {"height": 9, "width": 8}}}
    (tmp_path / "processor_config.json").write_text(json.dumps(raw))
    assert ImageProcessor.from_folder(tmp_path)(picture(20, 20)).shape == (1, 3, 9, 8)


@pytest.mark.parametrize("mode", ["L", "RGBA", "LA", "P", "P with transparency", "1", "CMYK"])
def test_modes_become_rgb_as_published(mode):
    image = picture(60, 80, channels=4 if "A" in mode else 3).convert(mode.split()[0])
    if "transparency" in mode:
        image.info["transparency"] = 3
    ours = ImageProcessor.from_config({"image_processor_type": "CLIPImageProcessor"})
    assert torch.equal(ours(image), theirs(CLIPImageProcessorPil(), image))


def test_sixteen_bits_are_scaled_and_not_cut_off():
    array = np.arange(0, 65536, 256, dtype=np.uint16).reshape(16, 16)
    expected = np.rint(array / 257).astype(np.uint8)
    for given in (array, Image.fromarray(array), Image.fromarray(array.astype(np.int32)), torch.from_numpy(array)):
        assert np.array_equal(np.asarray(open_image(given))[..., 1], expected)
    dark = np.full((4, 4), 200, np.uint16)
    assert np.asarray(open_image(dark)).max() == 1


def test_a_picture_is_turned_as_the_camera_says(tmp_path):
    image, exif = picture(20, 30), Image.Exif()
    exif[0x0112] = 6  # the camera was held on its side
    image.save(tmp_path / "a.png", exif=exif)
    turned = np.asarray(open_image(tmp_path / "a.png"))
    assert np.array_equal(turned, np.rot90(np.asarray(image), -1))


def test_arrays_of_every_shape_are_the_same_picture():
    array = np.asarray(picture(20, 30))
    for given in (array, array.transpose(2, 0, 1), torch.from_numpy(array.copy()), array / 255.0):
        assert np.array_equal(np.asarray(open_image(given)), array)
    grey = array[..., :1]
    for given in (grey, grey[..., 0], grey.transpose(2, 0, 1)):
        assert np.array_equal(np.asarray(open_image(given))[..., 2], grey[..., 0])
    ours = ImageProcessor.from_config({})
    assert torch.equal(ours(np.stack([array, array])), ours([array, array]))


def test_files_and_batches(tmp_path):
    first, second = picture(20, 30), picture(40, 25, seed=1)
    first.save(tmp_path / "a.png")
    second.save(tmp_path / "b.webp", lossless=True)
    ours = ImageProcessor.from_config({"image_processor_type": "ViTImageProcessor"})
    batch = ours([tmp_path / "a.png", str(tmp_path / "b.webp")])
    assert batch.shape == (2, 3, 224, 224)
    assert torch.equal(batch, theirs(ViTImageProcessorPil(), first, second))


def test_what_is_no_picture_is_refused(tmp_path):
    ours = ImageProcessor.from_config({})
    (tmp_path / "a.png").write_text("not a picture")
    picture(90, 90).save(tmp_path / "whole.jpg")
    whole = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "half.jpg").write_bytes(whole[: len(whole) // 2])
    for name in ("a.png", "half.jpg"):
        with pytest.raises(ClearheadError, match=f"{name} can't be read as a picture"):
            ours(tmp_path / name)
    with pytest.raises(ClearheadError, match=r"there is no file .*none\.png"):
        ours(tmp_path / "none.png")
    with pytest.raises(ClearheadError, match="a dict is no picture"):
        ours({"a": 1})
    with pytest.raises(ClearheadError, match="can't be read as a picture"):
        ours(tmp_path)
    for shape in ((5,), (5, 5, 2), (2, 2, 3, 4, 4), (0, 4), (4, 0, 3)):
        with pytest.raises(ClearheadError, match="is no picture"):
            ours(np.zeros(shape, np.uint8))
    for value in (1.5, -0.1, float("nan")):
        with pytest.raises(ClearheadError, match="from 0 to 1"):
            ours(np.full((4, 4), value))
    with pytest.raises(ClearheadError, match="at most 16 bits"):
        ours(np.full((4, 4), 70000))
    with pytest.raises(ClearheadError, match="real numbers has no known range"):
        ours(Image.fromarray(np.zeros((4, 4), np.float32)))
    with pytest.raises(ClearheadError, match="no pictures"):
        ours([])


def test_pictures_of_different_sizes_are_no_batch():
    ours = ImageProcessor.from_config({"do_resize": False})
    with pytest.raises(ClearheadError, match="20 x 30 and 40 x 25 pixels can't be one batch"):
        ours([picture(20, 30), picture(40, 25)])


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"image_processor_type": "PixtralImageProcessor"}, "PixtralImageProcessor are not understood"),
        ({"do_reduce_labels": True}, "'do_reduce_labels' = True"),
        ({"size": {"longest_edge": 40}}, "size is"),
        ({"size": 40, "do_center_crop": True}, "one number"),
        ({"size": -3}, "a number of pixels"),
        ({"size": "large"}, "height and width"),
        ({"image_mean": [0.5, 0.5]}, "three numbers"),
    ],
)
def test_a_config_that_is_not_understood_is_refused(raw, message):
    with pytest.raises(ClearheadError, match=message):
        ImageProcessor.from_config(raw)


def test_a_folder_that_says_nothing_is_refused(tmp_path):
    with pytest.raises(ClearheadError, match="put the model's preprocessor_config"):
        ImageProcessor.from_folder(tmp_path)


# ---- grey, and written


@pytest.mark.parametrize("shape", [(50, 61), (8, 8)], ids="{0[0]}x{0[1]}".format)
def test_one_mean_is_for_grey_pictures(shape, tmp_path):
    processor = ViTImageProcessorPil(size={"height": 12, "width": 9}, image_mean=[0.3], image_std=[0.4])
    processor.save_pretrained(tmp_path)
    ours = ImageProcessor.from_folder(tmp_path)
    grey = picture(*shape).convert("L")
    assert ours.channels == 1 and ours.size == (12, 9)
    assert torch.equal(ours(grey), theirs(processor, grey))
    # A picture in colour is made grey first, as pillow does it; an array of two dimensions is grey already.
    assert torch.equal(ours(picture(*shape)), theirs(processor, picture(*shape).convert("L")))
    assert torch.equal(ours(np.asarray(grey)), ours(grey))


@pytest.mark.parametrize("changes", [*ODD, "grey"])
def test_a_processor_that_is_written_reads_the_same(changes, tmp_path):
    """Here, and by the published class, which the file names."""
    grey = {"size": {"height": 30, "width": 17}, "do_center_crop": False, "image_mean": [0.3], "image_std": [0.4]}
    raw = CLIPImageProcessorPil(**ODD.get(changes, grey)).to_dict()
    ours = ImageProcessor.from_config(raw)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(ours.to_config()))
    assert ImageProcessor.from_folder(tmp_path) == ours
    image = picture(70, 50).convert("L" if changes == "grey" else "RGB")
    again = ViTImageProcessorPil.from_pretrained(tmp_path)
    assert torch.equal(theirs(again, image).float(), ours(image))


def test_what_fits_a_picture_and_what_normalises_it_are_the_whole(tmp_path):
    ours = ImageProcessor.from_config({"size": 10, "image_mean": [0.3], "image_std": [0.4]})
    fitted = ours.fitted(picture(20, 30))
    assert fitted.shape == (10, 10, 1) and fitted.dtype == np.uint8
    assert torch.equal(torch.from_numpy(ours.normalised(fitted))[None], ours(picture(20, 30)))


def test_as_many_means_as_deviations():
    with pytest.raises(ClearheadError, match="both need as many"):
        ImageProcessor.from_config({"image_mean": [0.5], "image_std": [0.5, 0.5, 0.5]})
