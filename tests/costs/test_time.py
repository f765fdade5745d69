"""Bounds of time, on the model of `tests.costs.by_hand` and against it worked out by hand."""

from __future__ import annotations

import pytest

from clearhead.costs.time import (
    bound,
    expected,
    matrix_shapes,
    reading,
    recurrent_steps,
    sequential_steps,
    weights_read,
    writing,
)
from tests.costs.by_hand import SLOW, config, published, tiny


def test_reading_a_text() -> None:
    """4 tokens: 2 x 4 x (192 + 384) + 2 x 80 for the logits of the last = 4,768 with weights; the mask leaves
    1 + 2 + 3 + 4 = 10 pairs, of 2 x 2 heads x (4 + 4) = 32 each. 680 weights and 4 x 8 numbers of state, of 2 bytes.
    """
    load = reading(tiny(), 1, 4, 2)
    assert load.flops == 4768 + 320
    assert load.weight_bytes == 1360 and load.state_bytes == 64
    assert load.intensity == 5088 / 1424
    found = bound(load, SLOW, "bfloat16")
    assert (found.arithmetic, found.memory) == (0.5088, 1.424)
    assert found.seconds == 1.424 and found.limit == "memory"


def test_reading_on_from_what_is_kept() -> None:
    """The last of 4 tokens: 2 x 576 + 160 with weights, and 4 pairs."""
    load = reading(tiny(), 1, 1, 2, kept=3)
    assert load.flops == 1312 + 4 * 32
    assert load.state_bytes == 64


def test_writing_a_token_of_three_texts() -> None:
    """3 x (2 x 656 + 5 x 32) operations; 680 weights once, and 3 x 5 x 8 numbers of state."""
    load = writing(tiny(), 3, 5, 2)
    assert load.flops == 3 * (1312 + 160)
    assert load.weight_bytes == 1360 and load.state_bytes == 240
    assert bound(load, SLOW, "bfloat16").seconds == 1.6
    # 1360 bytes at 500 a second, 240 at 1000, and what a step takes beside.
    assert expected(load, SLOW) == pytest.approx(2.72 + 0.24 + 0.25)


def test_many_texts_wait_for_arithmetic() -> None:
    """100 of them: 100 x 1,344 operations with a state of one token are 13.44 s, 1360 + 1600 bytes 2.96 s."""
    found = bound(writing(tiny(), 100, 1, 2), SLOW, "bfloat16")
    assert found.limit == "arithmetic" and found.seconds == 13.44


def test_a_table_that_is_the_head_too_is_read() -> None:
    """80 numbers of the table in place of 80 of the head."""
    assert weights_read(tiny(), 1) == 680
    assert weights_read(tiny(tie_word_embeddings=True), 1) == 680
    assert tiny(tie_word_embeddings=True).parameters.total == 680


def test_as_many_experts_are_read_as_tokens_are_expected_to_choose() -> None:
    """2 of 4: one token has half of them, two have 1 - 1/4 of them, and many have all."""
    mixture = {"num_local_experts": 4, "num_experts_per_tok": 2, "hidden_size": 8, "intermediate_size": 16}
    sizes = {
        "vocab_size": 10,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 4,
    }
    from clearhead.costs import counts

    found = counts(config("mixtral", **mixture, **sizes))
    experts = 4 * 3 * 8 * 16
    others = 192 + 4 * 8 + 80 + 24
    for tokens, share in ((1, 0.5), (2, 0.75), (3, 0.875)):
        assert weights_read(found, tokens) == others + share * experts
    assert weights_read(found, 1000) == pytest.approx(others + experts)


def test_the_matrices_that_writing_reads() -> None:
    """By (out, in): q and o; k and v; gate and up; down; the head."""
    assert matrix_shapes(tiny()) == {(8, 8): 2, (4, 8): 2, (16, 8): 2, (8, 16): 1, (10, 8): 1}


def test_of_an_encoder_and_a_decoder_writing_reads_the_decoder() -> None:
    found = published("whisper-tiny")
    assert weights_read(found, 1, with_source=False) < weights_read(found, 1)


def test_steps_that_wait_for_one_another() -> None:
    """S55: as many as layers in attention, however long the text; n a layer in a recurrent network."""
    llama = published("llama3-70b")
    assert sequential_steps(llama, 10) == sequential_steps(llama, 8192) == 80
    assert recurrent_steps(llama, 8192) == 80 * 8192
    # A scan of 1,024 tokens goes in 32 chunks of 32.
    from clearhead.costs import counts

    mamba = counts(config("mamba", num_hidden_layers=3))
    assert sequential_steps(mamba, 1024) == 3 * 64
