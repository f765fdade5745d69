"""What masked-language-model training hides, and behind what."""

from __future__ import annotations

import numpy as np
import pytest

from clearhead.errors import ClearheadError, UsageError
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.ops.losses import IGNORE
from clearhead.training.config import MaskingConfig
from clearhead.training.data.batches import generator
from clearhead.training.data.masking import Masker
from clearhead.training.data.tokenizers import TokenizerConfig, train_tokenizer

TEXT = "the unbelievable keys to the cabinet are on the table; unbelievable, the trophy did not fit. "


@pytest.fixture(scope="module")
def pieces() -> Tokenizer:
    return train_tokenizer([TEXT * 3], TokenizerConfig(kind="wordpiece", size=60))


@pytest.fixture(scope="module")
def merges() -> Tokenizer:
    marks = (("bos_token", "<s>"), ("eos_token", "</s>"), ("mask_token", "<mask>"))
    return train_tokenizer([TEXT * 3], TokenizerConfig(kind="bpe", size=290, marks=marks))


def test_the_shares_are_exact(pieces: Tokenizer) -> None:
    """Within one token of the paper's in every row, and over all rows together."""
    masker = Masker(pieces, MaskingConfig())
    row_T = np.array(pieces.encode(TEXT))
    n = len(row_T) - 2
    counts = np.zeros(4)
    for i in range(2000):
        seen_T, targets_T = masker(row_T, generator(0, i))
        told = targets_T != IGNORE
        assert (targets_T[told] == row_T[told]).all()
        assert (seen_T[~told] == row_T[~told]).all()
        assert not told[[0, -1]].any()
        masked = seen_T == masker.mask_id
        assert abs(told.sum() - 0.15 * n) < 1
        assert abs(masked.sum() - 0.8 * told.sum()) < 1
        counts += [n, told.sum(), masked.sum(), (told & ~masked & (seen_T != row_T)).sum()]
    assert abs(counts[1] / counts[0] - 0.15) < 0.002
    assert abs(counts[2] / counts[1] - 0.8) < 0.01
    # Another token is the same one by chance, once in as many as there are.
    assert abs(counts[3] / counts[1] - 0.1 * (1 - 1 / len(masker.ordinary))) < 0.01


def test_special_tokens_are_never_chosen_nor_put_in(pieces: Tokenizer) -> None:
    masker = Masker(pieces, MaskingConfig(share=1.0, masked=0.0, other=1.0))
    special = sorted(pieces.special)
    row_T = np.array([*special, *pieces.encode(TEXT), *special])
    for i in range(50):
        seen_T, targets_T = masker(row_T, generator(0, i))
        is_special = np.isin(row_T, special)
        assert (seen_T[is_special] == row_T[is_special]).all()
        assert (targets_T[is_special] == IGNORE).all()
        assert (targets_T[~is_special] != IGNORE).all()
        assert not np.isin(seen_T[~is_special], special).any()


@pytest.mark.parametrize("kind", ["pieces", "merges"])
def test_whole_words_are_hidden_together(kind: str, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    masker = Masker(tokenizer, MaskingConfig(whole_words=True, share=0.3))
    row_T = np.array(tokenizer.encode(TEXT))
    spelled = [p.removeprefix("·") for p in tokenizer.pieces(row_T.tolist())]
    starts = np.array([p.startswith("·") for p in tokenizer.pieces(row_T.tolist())])
    word_T = np.cumsum(starts | np.array([not s.isalnum() for s in spelled]) | (np.arange(len(row_T)) < 2))
    assert np.bincount(word_T).max() > 2  # some words have several tokens
    n_told = 0
    for i in range(300):
        _, targets_T = masker(row_T, generator(0, i))
        told = targets_T != IGNORE
        n_told += told.sum()
        for word in np.unique(word_T):
            assert len(set(told[word_T == word])) == 1
    # A word that is longer than what is left to choose is passed over.
    assert 0.2 < n_told / 300 / len(row_T) <= 0.3


def test_parts_of_a_character_are_parts_of_its_word() -> None:
    marks = (("eos_token", "</s>"), ("mask_token", "<mask>"))
    tokenizer = train_tokenizer([], TokenizerConfig(kind="bytes", marks=marks))
    masker = Masker(tokenizer, MaskingConfig(whole_words=True, share=0.5))
    row_T = np.array(tokenizer.encode("näh, öl", bos=False))
    words = {(0, 1, 2, 3), (4,), (5, 6, 7, 8)}
    for i in range(50):
        told = np.flatnonzero(masker(row_T, generator(0, i))[1] != IGNORE).tolist()
        assert all(set(word) <= set(told) or not set(word) & set(told) for word in words)
        assert told


def test_a_row_of_marks_alone_has_nothing_to_tell(pieces: Tokenizer) -> None:
    for whole_words in (False, True):
        masker = Masker(pieces, MaskingConfig(whole_words=whole_words))
        row_T = np.array(pieces.encode(""))
        seen_T, targets_T = masker(row_T, generator(0))
        assert (seen_T == row_T).all()
        assert (targets_T == IGNORE).all()


def test_a_tokenizer_without_a_mask_is_refused() -> None:
    with pytest.raises(ClearheadError, match="has no mask token"):
        Masker(train_tokenizer([], TokenizerConfig(kind="bytes")), MaskingConfig())


@pytest.mark.parametrize(
    ("options", "says"), [({"share": 0.0}, "more than 0"), ({"masked": 0.95}, "together at most 1")]
)
def test_shares_that_can_not_be_are_refused(options: dict[str, float], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        MaskingConfig(**options)
