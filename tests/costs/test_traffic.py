"""What attention moves, worked by hand, against the figures of the paper's algorithm, and its law."""

from __future__ import annotations

import pytest

from clearhead.config import AttentionConfig
from clearhead.costs import counts
from clearhead.costs.traffic import Heads, standard, tiled
from clearhead.errors import ClearheadError
from tests.costs.models import published
from tests.costs.small import small


def test_worked_by_hand() -> None:
    """6 tokens, a head of 4. Standard: 6 x 4 four times and 36 four times, 240. A fast memory of 40 has room for blocks
    of ceil(40 / 16) = 3 rows: 2 blocks of keys; keys and values once, 48; for each block the queries in, the output in
    and out, 2 x 72: 192.
    """
    head = Heads(1, 4, 4)
    assert standard(6, 6, head) == 240
    assert tiled(6, 6, head, 40) == 192


def test_a_model_has_layers_and_heads() -> None:
    """2 layers of 2 heads, 2 bytes a number; the matrices of one layer are 2 x 36 numbers."""
    found = counts(small()).attention_traffic(6, 80)
    assert (found.standard, found.tiled, found.scores) == (2 * 2 * 240 * 2, 2 * 2 * 192 * 2, 2 * 36 * 2)


@pytest.mark.parametrize(("n", "ratio"), [(1024, 3.4), (4096, 4.0), (16384, 4.15)])
def test_the_papers_figures(n: int, ratio: float) -> None:
    """d = 64 and 51,200 numbers (100 kB of halves, as on an A100)."""
    head = Heads(1, 64, 64)
    assert standard(n, n, head) / tiled(n, n, head, 51_200) == pytest.approx(ratio, abs=0.05)


def test_twice_the_fast_memory_halves_the_traffic() -> None:
    """Theta(N^2 d^2 / M), as long as there are many blocks (Dao 2022, theorem 2); the standard form does not care."""
    head = Heads(1, 64, 64)
    found = [tiled(2**20, 2**20, head, m) for m in (2**14, 2**15, 2**16)]
    assert found[0] / found[1] == pytest.approx(2, abs=0.01)
    assert found[1] / found[2] == pytest.approx(2, abs=0.01)
    assert tiled(2**21, 2**21, head, 2**14) / found[0] == pytest.approx(4, abs=0.01)


def test_a_text_that_fits_is_read_once() -> None:
    assert tiled(5, 5, Heads(1, 4, 4), 10_000) == 5 * 4 * (2 + 3)


def test_scans_write_no_scores() -> None:
    found = counts(published("mamba-130m")).attention_traffic(1000, 10_000)
    assert (found.standard, found.tiled, found.scores) == (0, 0, 0)


def test_encoders_and_sources_count() -> None:
    """Whisper tiny: 4 layers over 1,500 tokens of sound; 4 over 10 of text, which look at the 1,500 too."""
    found = counts(published("whisper-tiny")).attention_traffic(10, 100_000, bytes_per_number=1)
    heads = Heads(6, 64, 64)
    assert found.standard == 4 * sum(standard(t, s, heads) for t, s in ((1500, 1500), (10, 10), (10, 1500)))


def test_bad_sizes() -> None:
    told = counts(small(mixer=AttentionConfig(n_heads=2, n_kv_heads=2, d_head=4)))
    with pytest.raises(ClearheadError, match="15 numbers can't hold one row"):
        told.attention_traffic(6, 30)
    with pytest.raises(ClearheadError, match="fast_memory_bytes is -1"):
        told.attention_traffic(6, -1)
    with pytest.raises(ClearheadError, match="65 tokens"):
        told.attention_traffic(65, 1000)
