"""`clearhead.cost`, and what the lesson says of time, price and memory."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from clearhead.costs import counts
from clearhead.costs.cost import Cost, cost
from clearhead.errors import ClearheadError, UsageError
from clearhead.families import FAMILIES
from tests.costs.by_hand import SIZES, SLOW, config

GIB = 2**30


def printed(found: Any) -> str:
    out = io.StringIO()
    found.print(Console(file=out, width=110))
    return out.getvalue()


def test_a_model_of_70_billion() -> None:
    """S59: 2 x 80 layers x 8 heads x 128 numbers of 2 bytes = 327,680 a token; 8,192 of them are 2.5 GiB and 131,072
    are 40 GiB, and with a key-value head for each of 64 query heads 8 times as much.
    """
    found = cost("llama3-70b", context=8192)
    assert found.parameters == 70_553_706_496
    assert found.state_bytes == 8192 * 327_680 == 2.5 * GIB
    assert found.state_at(131_072) == 40 * GIB
    assert found.counts.state(1, 8192).multi_head_total == 20 * GIB
    text = printed(found)
    for words in (
        "80 layers, 64 query heads on 8 key-value heads of 128",
        "327,680 bytes a token",
        "2.5 GiB",
        "40 GiB",
        "at 131,072 tokens",
        "8 x",
        "70,553,706,496",
    ):
        assert words in text
    assert cost("llama3-70b", context=131_072).state_bytes == 40 * GIB


def test_all_that_is_asked_is_the_sum_of_its_parts() -> None:
    """Two texts of 4 tokens on the model of `tests.costs.by_hand`, in float32: 760 x 4 and 2 x 4 x 8 x 4 bytes."""
    found = cost(config(**SIZES), context=4, batch=2, dtype="float32", memory=1e-5)
    assert found.weight_bytes == 3040 and found.state_bytes == 256
    assert found.flops["write"].total == 2 * (1312 + 4 * 32)
    assert found.flops["train"].rule == 6 * 760 * 8
    # 10,737 bytes have room for (10,737 - 3,040) / 64 tokens.
    assert found.longest == 120
    assert found.outweighs == 48  # 3,040 / 64 = 47.5


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_cost_in_words_and_in_numbers(family: str) -> None:
    found = cost(family, batch=2, device="h200", price_per_hour=3.0)
    assert isinstance(found, Cost)
    text, told = printed(found), json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert f"{found.parameters:,}" in text and told["parameters"]["total"] == found.parameters
    assert told["device"]["reading"]["seconds"] > 0
    assert ("state" in told) == found.writes == ("writing" in told["device"])


def test_what_is_wrong_is_refused_before_anything_is_measured() -> None:
    small = config(**SIZES)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"context": 0}, "context is 0"),
        ({"context": -5}, "context is -5"),
        ({"batch": 0}, "batch is 0"),
        ({"context": 9}, r"made for texts of 8 tokens, and the context is 9; .*yarn:2"),
        ({"dtype": "int3"}, "'int3' is not known"),
        ({"device": "h1000"}, "no device 'h1000'"),
        ({"device": "t4"}, "no peak for bfloat16"),
        ({"device": "here", "dtype": "int8"}, "measured in float32"),
        ({"device": "here", "devices": 2}, "one machine here"),
        ({"device": "l4", "devices": 0}, "devices is 0"),
        ({"devices": 2}, "name one too"),
        ({"memory": 0}, "memory is 0 GiB"),
        ({"memory": -1.0}, "memory is -1 GiB"),
        ({"price_per_hour": -1.0, "device": "l4"}, "0 or more"),
        ({"kept": 9, "context": 8}, "9 tokens of a prompt can't be kept"),
        ({"kept": 0}, "kept is 0"),
        ({"optimiser": "sgd"}, "no optimiser 'sgd'"),
        ({"tensor": 3}, "heads"),
        ({"shard": 0}, "shard is 0"),
        ({"fast_memory": 0.01}, "fast memory"),
    ]
    for how, words in wrong:
        with pytest.raises(ClearheadError, match=words):
            cost(small, **how)
    with pytest.raises(UsageError, match="always becomes 197 tokens"):
        cost("vit-b-16", context=100)
    with pytest.raises(ClearheadError, match="no model"):
        cost("lama")
    stretched = cost("pythia-70m", context=4096, rope={"rope_type": "yarn", "factor": 2.0})
    assert stretched.state_bytes == 2 * cost("pythia-70m").state_bytes
    without = cost("gpt2")
    with pytest.raises(UsageError, match=r"1,024 tokens, and the context is 2,000$"):
        cost("gpt2", context=2000)
    assert without.ask.context == 1024


def test_a_device_of_your_own_serves_too() -> None:
    found = cost(config(**SIZES), context=4, device=SLOW)
    assert found.service is not None and found.service.reading.seconds == 1.424
    # 760 x 2 + 64 bytes are within its 2,000; in float32 it takes two.
    assert found.device == SLOW
    assert cost(config(**SIZES), context=4, device=SLOW, devices=3).memory == 6000


def test_as_many_devices_as_hold_it() -> None:
    """141 GB of weights: two of 80 GiB, one of 141 GiB in 8 bits."""
    two = cost("llama3-70b", context=8192, device="a100-80gb").device
    one = cost("llama3-70b", context=8192, device="h200", dtype="float8").device
    assert two is not None and one is not None
    assert two.memory == 160 * GIB and one.memory == 141 * GIB
    alone = cost("llama3-70b", device="a100-80gb", devices=1)
    assert alone.service is not None and not alone.service.fits and alone.longest == 0
    assert "do not fit" in printed(alone) and "as if it did" in printed(alone)


# ---- what the lesson says (LESSON.md)


def test_s30_many_narrow_heads_cost_what_one_wide_head_does() -> None:
    """8 heads of 64 in 512, and one of 512: as many parameters and operations."""
    wide = {**SIZES, "hidden_size": 512, "max_position_embeddings": 64}
    many = counts(config(**{**wide, "num_attention_heads": 8, "num_key_value_heads": 8}))
    one = counts(config(**{**wide, "num_attention_heads": 1, "num_key_value_heads": 1}))
    assert many.parameters.parts["attention"] == one.parameters.parts["attention"] == 4 * 512 * 512
    assert many.flops(1, 64).total == one.flops(1, 64).total


def test_s46_two_thirds_of_a_block_are_in_the_feed_forward() -> None:
    """2 x 4 d^2 of 12 d^2."""
    parts = cost("gpt2").counts.parameters.parts
    assert parts["feed-forward"] / (parts["feed-forward"] + parts["attention"]) == pytest.approx(2 / 3, abs=1e-3)


def test_s55_a_recurrence_waits_for_every_token() -> None:
    told = cost("llama3-70b", context=1000).to_json()
    assert told["sequential_steps"] == 80 and told["recurrent_steps"] == 80_000


def test_s58_scores_grow_with_the_square_and_the_state_outgrows_the_weights() -> None:
    """One head's scores of n tokens are n x n numbers; the state grows by the same every token, until it is most."""
    found = cost("llama3-8b").counts
    # 32 heads of numbers of 2 bytes.
    assert [found.attention_traffic(n, 2**20).scores / 64 for n in (1000, 2000)] == [1000**2, 2000**2]
    assert found.state(1, 2000).total == 2 * found.state(1, 1000).total
    serving = cost("llama3-8b", batch=32)
    where = serving.outweighs
    assert where is not None and where < 8192 and serving.state_bytes > serving.weight_bytes


def test_s62_of_a_mixture_few_experts_work_on_a_token() -> None:
    parameters = cost("mixtral-8x7b").counts.parameters
    assert (parameters.total, parameters.active) == (46_702_792_704, 12_879_925_248)


def test_s64_price_length_users_and_kept_prompts_follow_from_the_state() -> None:
    """With a key-value head for each query head there is room for an eighth of the users, and less to read a token."""
    grouped, multi = (
        cost(config(**{**BIG, "num_key_value_heads": n}), device="h100-sxm", devices=4, price_per_hour=8.0).service
        for n in (8, 64)
    )
    assert grouped is not None and multi is not None
    assert grouped.users is not None and multi.users is not None
    assert 6 <= grouped.users / multi.users <= 10
    assert grouped.price_out(grouped.users) < multi.price_out(multi.users)
    # A kept prompt saves most of its reading, and takes what its state takes.
    assert grouped.price_saved() > 0.95 * grouped.price_in() * grouped.ask.context / 1e6
    # The longest text, twice as long for half as many.
    one, two = (cost("llama3-8b", batch=n, memory=24) for n in (1, 2))
    assert one.longest is not None and two.longest == one.longest // 2


BIG = {
    "vocab_size": 128256,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "max_position_embeddings": 8192,
}
