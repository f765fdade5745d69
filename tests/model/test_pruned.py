"""Cutting heads off models whose heads are counted together: slopes, one norm over all, tables, shared blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from clearhead.config import (
    AlibiConfig,
    AttentionConfig,
    BiasConfig,
    KeptHeads,
    NormConfig,
    QKNormConfig,
    RelativeBiasConfig,
    RotaryConfig,
    ScoresConfig,
    SublayerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.lens import edit
from clearhead.model.kept_heads import attention_layers, read, restored, without, written
from clearhead.model.kv_heads import grouped
from clearhead.model.pruned import without_heads
from clearhead.model.transformer import Transformer
from tests.model.small import small
from tests.oracles import TOLERANCE, error
from tests.tiny import lively

TOKENS = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(3))
F32 = TOLERANCE[torch.float32]
FIRST, SECOND = "layers.0.mixer", "layers.1.mixer"


def model_with(share: tuple[int, ...] | None = None, **changes: object) -> Transformer:
    """Two layers of four heads with these changes of their attention."""
    config = small().config
    blocks = tuple(
        replace(block, mixer=replace(block.mixer, op=replace(block.mixer.op, **changes)))
        for block in config.decoder.blocks
    )
    return lively(Transformer(replace(config, decoder=replace(config.decoder, blocks=blocks, share=share))))


def zero(*heads: int):
    return lambda z_BHTK: z_BHTK.index_fill(1, torch.tensor(heads), 0.0)


NORM = NormConfig()
KINDS = {
    "rotary": {"positions": RotaryConfig()},
    "alibi": {"positions": AlibiConfig(), "n_kv_heads": 4},
    "alibi_grouped": {"positions": AlibiConfig()},
    "relative": {"positions": RelativeBiasConfig(n_buckets=8, max_distance=16)},
    "norm_of_all": {"qk_norm": QKNormConfig(norm=NORM, over="all_heads")},
    "norm_of_each": {"qk_norm": QKNormConfig(norm=NORM)},
    "sinks_and_biases": {"scores": ScoresConfig(sinks=True), "bias": BiasConfig(q=True, k=True, v=True, o=True)},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
def test_it_is_the_model_with_their_output_zero(kind: str, backend: str) -> None:
    model = model_with(**KINDS[kind])
    cut = {FIRST: [1, 2], SECOND: [0, 1]}  # one of each key-value head's, and both of the first one's
    expected = edit(model, TOKENS, {f"{at}.z": zero(*heads) for at, heads in cut.items()}, backend=backend)
    smaller = without_heads(model, cut)
    with torch.no_grad():
        assert error(smaller(TOKENS, backend=backend), expected) <= F32
        assert error(model(TOKENS), expected) > 0.05
    # Text in pieces, with what is kept of the heads that are left.
    state = smaller.new_state()
    with torch.no_grad():
        pieces = [smaller(TOKENS[:, a:b], state=state) for a, b in ((0, 4), (4, 5), (5, 9))]
    assert error(torch.cat(pieces, 1), expected) <= F32


def test_its_matrices_are_smaller_by_what_the_heads_had() -> None:
    """Queries, keys, values and outputs of d_model x d_head each, and their biases and sinks."""
    both = BiasConfig(q=True, k=True, v=True, o=True)
    model = model_with(n_kv_heads=4, bias=both, scores=ScoresConfig(sinks=True))
    smaller = without_heads(model, {FIRST: [3], SECOND: [0, 2]})
    n_before, n_after = (sum(p.numel() for p in m.parameters()) for m in (model, smaller))
    assert n_before - n_after == 3 * (4 * 32 * 8 + 3 * 8 + 1)
    # Two queries on one key-value head: they go with it.
    model = model_with()
    n_before, n_after = (sum(p.numel() for p in m.parameters()) for m in (model, without_heads(model, {FIRST: [0, 1]})))
    assert n_before - n_after == (2 + 1 + 1 + 2) * 32 * 8


def test_all_else_is_shared_and_the_whole_model_stays() -> None:
    model = model_with()
    with torch.no_grad():
        before = model(TOKENS)
    smaller = without_heads(model, {FIRST: [0, 1]})
    assert smaller.layers[1].mixer.q_proj.weight is model.layers[1].mixer.q_proj.weight
    assert smaller.layers[0].mixer.q_proj.weight is not model.layers[0].mixer.q_proj.weight
    with torch.no_grad():
        assert torch.equal(model(TOKENS), before)
    assert not smaller.training


def test_blocks_that_run_with_the_same_weights_lose_the_same_heads() -> None:
    model = model_with(share=(0, 0))
    smaller = without_heads(model, {FIRST: [1, 2], SECOND: [1, 2]})
    assert smaller.layers[1].mixer.q_proj.weight is smaller.layers[0].mixer.q_proj.weight
    expected = edit(model, TOKENS, {"layers.*.mixer.z": zero(1, 2)})
    with torch.no_grad():
        assert error(smaller(TOKENS), expected) <= F32
    with pytest.raises(ClearheadError, match="same ones"):
        without_heads(model, {FIRST: [1, 2]})


def test_cut_again_heads_are_counted_anew_and_written_as_first_counted() -> None:
    model = model_with(n_kv_heads=4, positions=AlibiConfig())
    once = without_heads(model, {FIRST: [0]})
    twice = without_heads(once, {FIRST: [0, 2]})
    assert attention_layers(twice.config)[FIRST].kept == KeptHeads(heads=(2,), of=4, of_kv=4)
    assert written(twice.config) == {"0": [0, 1, 3]}
    expected = edit(model, TOKENS, {f"{FIRST}.z": zero(0, 1, 3)})
    with torch.no_grad():
        assert error(twice(TOKENS), expected) <= F32
    assert restored(twice.config) == model.config
    assert read(model.config, written(twice.config)) == twice.config


@pytest.mark.parametrize(
    ("cut", "problem"),
    [
        ({"layers.2.mixer": [0]}, r"layers\.0\.mixer"),
        ({FIRST: [4]}, "0 to 3"),
        ({FIRST: [0, 1, 2, 3]}, "at least one"),
        ({FIRST: [0]}, "serve as many"),
    ],
)
def test_heads_that_cannot_go(cut: dict[str, list[int]], problem: str) -> None:
    with pytest.raises(ClearheadError, match=problem):
        without_heads(model_with(), cut)


def test_what_heads_are_left_must_fit_the_sublayer() -> None:
    op = AttentionConfig(n_heads=2, n_kv_heads=2, d_head=8)
    kept = KeptHeads(heads=(0, 3), of=4, of_kv=4)
    assert SublayerConfig(op=op, kept=kept).kept == kept
    for wrong in (replace(op, n_heads=4, n_kv_heads=2), replace(op, n_heads=2, n_kv_heads=1)):
        with pytest.raises(ClearheadError, match="left"):
            SublayerConfig(op=wrong, kept=kept)
    for heads in ((), (3, 0), (0, 0), (0, 4)):
        with pytest.raises(ClearheadError):
            KeptHeads(heads=heads, of=4, of_kv=4)
    with pytest.raises(ClearheadError, match="cut off"):
        grouped(without_heads(model_with(n_kv_heads=4), {FIRST: [0, 1]}), 1)


def test_an_unchanged_config_says_nothing() -> None:
    config = model_with().config
    assert written(config) == {}
    assert without(config, {FIRST: []}) == config
    assert restored(config) is config
