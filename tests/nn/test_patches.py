"""The fronts that read pictures and spectrograms, and positions for pictures of other sizes (case H22)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.config import FramesConfig, PatchesConfig
from clearhead.errors import ClearheadError
from clearhead.nn.frames import Frames, n_frame_tokens
from clearhead.nn.patches import Patches, n_patch_tokens, patch_grid
from clearhead.ops.positions import resize_grid
from tests.oracles import close, error

CONFIG = PatchesConfig(patch=8, image=(32, 32))


def drawn(module: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


@pytest.mark.parametrize(("height", "width", "n"), [(32, 32, 17), (32, 48, 25), (48, 32, 25), (8, 8, 2)])
def test_how_many_tokens_a_picture_is(height, width, n):
    assert n_patch_tokens(CONFIG, height, width) == n
    patches = drawn(Patches(12, CONFIG))
    assert patches(torch.randn(2, 3, height, width), torch.randn(1, 12)).shape == (2, n, 12)


@pytest.mark.parametrize(("height", "width"), [(33, 32), (32, 31), (4, 8), (0, 8)])
def test_a_picture_that_can_not_be_cut_is_refused(height, width):
    with pytest.raises(ClearheadError, match=f"{height} x {width} pixels can't be cut into squares of 8"):
        patch_grid(CONFIG, height, width)
    with pytest.raises(ClearheadError, match="squares of 8"):
        Patches(12, CONFIG)(torch.randn(1, 3, height, width))


def test_other_channels_are_refused():
    with pytest.raises(ClearheadError, match="4 channels, and this model reads 3"):
        Patches(12, CONFIG)(torch.randn(1, 4, 32, 32))


@pytest.mark.parametrize("bias", [True, False])
def test_a_token_is_the_product_of_a_square_and_a_matrix(bias):
    config = PatchesConfig(patch=4, image=(8, 12), channels=2, n_prefix=2, bias=bias)
    patches = drawn(Patches(5, config)).double()
    pixels, prefix = torch.randn(3, 2, 8, 12).double(), torch.randn(2, 5).double()
    x = patches(pixels, prefix)
    assert torch.equal(x[:, :2], prefix.expand(3, 2, 5))
    matrix = patches.weight.reshape(5, -1)
    for token, (row, column) in enumerate((row, column) for row in range(2) for column in range(3)):
        square = pixels[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4].reshape(3, -1)
        expected = square @ matrix.T + (patches.bias if bias else 0)
        assert close(x[:, 2 + token], expected)


@pytest.mark.parametrize(("n_frames", "n"), [(3000, 1500), (7, 4), (8, 4), (1, 1)])
def test_how_many_tokens_a_spectrogram_is(n_frames, n):
    config = FramesConfig(n_mels=6)
    assert n_frame_tokens(config, n_frames) == n
    assert drawn(Frames(10, config))(torch.randn(2, 6, n_frames)).shape == (2, n, 10)


def test_frames_are_convolutions_with_an_activation_each():
    frames = drawn(Frames(5, FramesConfig(n_mels=4, strides=(1, 2), activation="relu"))).double()
    x_BCT = spectrogram = torch.randn(2, 4, 9).double()
    for stride, name in ((1, "0"), (2, "1")):
        weight, bias = frames.get_parameter(f"{name}.weight"), frames.get_parameter(f"{name}.bias")
        padded = torch.nn.functional.pad(x_BCT, (1, 1))
        windows = padded.unfold(2, 3, stride)  # B C t k
        x_BCT = (torch.einsum("bctk,dck->bdt", windows, weight) + bias[:, None]).clamp(min=0)
    assert close(frames(spectrogram), x_BCT.transpose(1, 2))


def test_another_number_of_bands_is_refused():
    with pytest.raises(ClearheadError, match="5 bands, and this model reads 80"):
        Frames(8, FramesConfig(n_mels=80))(torch.randn(1, 5, 9))


# ---- positions


def cubic(n_old: int, n_new: int) -> Tensor:
    """The matrix of bicubic interpolation along one side (Keys 1981, a = -3/4), ends repeated."""
    a, matrix = -0.75, torch.zeros(n_new, n_old, dtype=torch.float64)
    for new in range(n_new):
        at = (new + 0.5) * n_old / n_new - 0.5
        left = int(at // 1)
        for old in range(left - 1, left + 3):
            x = abs(at - old)
            near, far = (a + 2) * x**3 - (a + 3) * x**2 + 1, a * (x**3 - 5 * x**2 + 8 * x - 4)
            matrix[new, min(max(old, 0), n_old - 1)] += near if x <= 1 else far
    return matrix


@pytest.mark.parametrize(("grid", "new"), [((4, 4), (4, 6)), ((4, 6), (3, 9)), ((3, 5), (7, 2)), ((14, 14), (24, 24))])
def test_positions_are_resized_bicubically(grid, new):
    table = torch.randn(2 + grid[0] * grid[1], 6, dtype=torch.float64)
    picture = table[2:].unflatten(0, grid)
    expected = torch.einsum("yh,xw,hwd->yxd", cubic(grid[0], new[0]), cubic(grid[1], new[1]), picture).flatten(0, 1)
    resized = resize_grid(table, grid, new)
    assert torch.equal(resized[:2], table[:2])
    assert error(resized[2:], expected) <= 1e-12


def test_every_size_comes_out_exact():
    table = torch.randn(1 + 14 * 14, 4)
    for height in range(14, 30):
        for width in range(14, 30):
            assert resize_grid(table, (14, 14), (height, width)).shape == (1 + height * width, 4)


def test_at_its_own_size_a_table_is_itself():
    table = torch.randn(1 + 4 * 6, 8)
    assert resize_grid(table, (4, 6), (4, 6)) is table
    assert not torch.equal(resize_grid(table, (4, 6), (6, 4)), table)


def test_a_turned_table_gives_the_turned_result():
    table = torch.randn(4 * 6, 5)
    turned = table.unflatten(0, (4, 6)).transpose(0, 1).flatten(0, 1)
    ours = resize_grid(table, (4, 6), (7, 9)).unflatten(0, (7, 9)).transpose(0, 1).flatten(0, 1)
    assert close(resize_grid(turned, (6, 4), (9, 7)), ours)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_resized_in_single_precision(dtype):
    table = torch.randn(1 + 16, 8).to(dtype)
    resized = resize_grid(table, (4, 4), (5, 7))
    assert resized.dtype == dtype
    assert torch.equal(resized, resize_grid(table.float(), (4, 4), (5, 7)).to(dtype))


@pytest.mark.parametrize(("height", "width"), [(32, 32), (32, 48), (48, 32), (56, 24), (64, 64)])
def test_positions_equal_the_published_ones(height, width):
    from transformers import ViTConfig
    from transformers.models.vit.modeling_vit import ViTEmbeddings

    theirs = ViTEmbeddings(ViTConfig(hidden_size=16, image_size=32, patch_size=8, num_attention_heads=2))
    table, new = theirs.position_embeddings[0], (height // 8, width // 8)
    expected = theirs.interpolate_pos_encoding(torch.zeros(1, 1 + new[0] * new[1], 16), height, width)
    assert torch.equal(resize_grid(table, (4, 4), new), expected[0])
