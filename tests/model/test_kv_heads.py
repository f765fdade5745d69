"""Pooling key-value heads: the formula, its inverse, what it leaves alone, and the folder it makes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import clearhead
from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    LatentAttentionConfig,
    LatentWidths,
    NormConfig,
    QKNormConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.model.kv_heads import grouped, grouped_config
from clearhead.model.transformer import Transformer
from tests import tiny
from tests.model.small import small
from tests.oracles import close, error
from tests.tiny import lively


def with_mixer(config: TransformerConfig, op: object) -> TransformerConfig:
    blocks = tuple(replace(block, mixer=replace(block.mixer, op=op)) for block in config.stack.blocks)
    return replace(config, decoder=replace(config.decoder, blocks=blocks))


def many_heads(n_heads: int = 6, over: str = "head") -> Transformer:
    op = AttentionConfig(
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=4,
        bias=BiasConfig(q=True, k=True, v=True),
        qk_norm=QKNormConfig(norm=NormConfig(), over=over),
    )
    return lively(Transformer(with_mixer(small().config, op)))


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_every_head_is_the_mean_of_its_group(n):
    model = many_heads().double()
    new = grouped(model, n)
    for old_layer, new_layer in zip(model.layers, new.layers, strict=True):
        for name in ("k_proj", "v_proj"):
            for kind in ("weight", "bias"):
                rows = getattr(getattr(old_layer.mixer, name), kind)
                heads = [rows[4 * h : 4 * h + 4] for h in range(6)]
                means = [sum(heads[g * 6 // n : (g + 1) * 6 // n]) / (6 // n) for g in range(n)]
                assert error(getattr(getattr(new_layer.mixer, name), kind), torch.cat(means)) <= 1e-15
        assert new_layer.mixer.k_norm.weight is old_layer.mixer.k_norm.weight
        assert new_layer.mixer.q_proj.weight is old_layer.mixer.q_proj.weight
    assert new.config == grouped_config(model.config, n)
    assert torch.isfinite(new(torch.randint(0, 50, (2, 7)))).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("n_shared", [2, 3, 4])
def test_pooling_undoes_repeating(dtype, n_shared):
    """Two key-value heads, each written out once for every query head that shares it."""
    few = many_heads(2 * n_shared)
    few = lively(Transformer(grouped_config(few.config, 2))).to(dtype)
    many = lively(Transformer(many_heads(2 * n_shared).config)).to(dtype)
    with torch.no_grad():
        for (name, to), source in zip(many.named_parameters(), few.parameters(), strict=True):
            if to.shape == source.shape:
                to.copy_(source)
            else:
                to.copy_(source.unflatten(0, (2, 4)).repeat_interleave(n_shared, 0).flatten(0, 1))
                assert ".k_proj." in name or ".v_proj." in name
        tokens = torch.randint(0, 50, (2, 9))
        assert close(many(tokens), few(tokens))
        back = grouped(many, 2)
        assert all(torch.equal(a, b) for a, b in zip(back.parameters(), few.parameters(), strict=True))
        assert torch.equal(back(tokens), few(tokens))


def test_a_norm_over_all_heads_is_pooled_like_them():
    model = many_heads(over="all_heads")
    new = grouped(model, 2)
    old, now = model.layers[0].mixer.k_norm.weight, new.layers[0].mixer.k_norm.weight
    assert close(now.view(2, 4), old.view(2, 3, 4).mean(1))
    assert new.layers[0].mixer.q_norm.weight is model.layers[0].mixer.q_norm.weight


def test_the_model_it_is_made_from_stays():
    model, tokens = small(), torch.randint(0, 50, (2, 7))
    with torch.no_grad():
        before = model(tokens)
        new = grouped(model, 1)
        assert torch.equal(model(tokens), before)
        assert error(new(tokens), before) > 1e-3
        assert torch.equal(grouped(model, 2)(tokens), before)  # as many as there were
    assert new.new_state().at("layers.0.mixer") is not None


def test_what_is_refused():
    with pytest.raises(
        ClearheadError, match=r"6 key-value heads of layer 0 .* 4 equal groups; possible are 1, 2, 3, 6"
    ):
        grouped(many_heads(), 4)
    with pytest.raises(ClearheadError, match="at least 1"):
        grouped(many_heads(), 0)
    with pytest.raises(ClearheadError, match="only a decoder"):
        grouped(small(kind="full"), 1)
    widths = LatentWidths(q=None, kv=8, nope=4, rope=4, value=4)
    latent = with_mixer(small().config, LatentAttentionConfig(n_heads=4, widths=widths, norm=NormConfig()))
    with pytest.raises(ClearheadError, match="layer 0 has latent attention"):
        grouped(Transformer(latent), 1)


@pytest.mark.parametrize(("family", "n"), [("llama", 2), ("llama", 1), ("qwen3", 1), ("olmo2", 2)])
def test_the_folder_loads_in_transformers(family, n, tmp_path):
    from transformers import AutoModelForCausalLM

    theirs: nn.Module = tiny.families()[family][0].make(num_key_value_heads=4)
    theirs.save_pretrained(tmp_path / "many")
    new = grouped(clearhead.load(tmp_path / "many"), n)
    clearhead.save(new, tmp_path / "few")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "few").eval()
    tokens = torch.randint(3, 99, (2, 20))
    with torch.no_grad():
        assert close(again(tokens).logits, new(tokens))
        assert torch.equal(clearhead.load(tmp_path / "few")(tokens), new(tokens))
    assert again.config.num_key_value_heads == n


def test_a_family_without_key_value_heads_says_so(tmp_path):
    tiny.make("gpt2").save_pretrained(tmp_path / "many")
    new = grouped(clearhead.load(tmp_path / "many"), 2)
    with pytest.raises(ClearheadError, match=r"n_kv_heads is 2 and would be read back as 4"):
        clearhead.save(new, tmp_path / "few")
