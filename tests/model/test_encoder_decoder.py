"""A decoder that looks at an encoder: cross-attention, one source kept, one table of distances a stack."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    MaskConfig,
    NormConfig,
    RelativeBiasConfig,
    RotaryConfig,
    ScoresConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.model.transformer import Transformer
from clearhead.taps import Recorder
from tests.oracles import TOLERANCE, error

F32 = TOLERANCE[torch.float32]
NORM = NormConfig(kind="layer", eps=1e-5, bias=True)
EMBED = EmbedConfig(front=TokensConfig(vocab_size=50))


def block(kind, positions, cross=False, n_kv_heads=2):
    def attention(mask, positions):
        return SublayerConfig(
            op=AttentionConfig(n_heads=4, n_kv_heads=n_kv_heads, d_head=8, mask=mask, positions=positions), pre=NORM
        )

    return BlockConfig(
        mixer=attention(MaskConfig(kind=kind), positions),
        cross=attention(MaskConfig(kind="full"), None) if cross else None,
        ffn=SublayerConfig(op=FeedForwardConfig(d_ff=48), pre=NORM),
    )


def lively(config, seed=0):
    model = Transformer(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
    return model


@pytest.fixture(params=[RotaryConfig(), RelativeBiasConfig(n_buckets=8, max_distance=12)], ids=["rotary", "relative"])
def model(request):
    """Cross-attention, grouped queries, width 32, two layers (case H07)."""
    positions = request.param
    return lively(
        TransformerConfig(
            d_model=32,
            encoder=StackConfig(embed=EMBED, blocks=(block("full", positions),) * 2, norm=NORM),
            decoder=StackConfig(embed=EMBED, blocks=(block("causal", positions, cross=True),) * 2, norm=NORM),
            heads=HeadsConfig(tokens=TokenHeadConfig()),
        )
    )


@pytest.fixture
def given():
    generator = torch.Generator().manual_seed(1)
    source, tokens = (
        torch.randint(0, 50, (3, 9), generator=generator),
        torch.randint(0, 50, (3, 12), generator=generator),
    )
    present = torch.ones(3, 9, dtype=torch.bool)
    present[1, 6:] = False
    present[2, [0, 1, 4]] = False
    return source, present, tokens


def test_cached_steps_equal_the_whole_pass_and_the_source_is_given_once(model, given):
    source, present, tokens = given
    with torch.no_grad():
        whole = model(tokens, source=source, source_present=present)
        state = model.new_state()
        out = [model(tokens[:, :2], source=source, source_present=present, state=state)]
        out += [model(tokens[:, at : at + 1], state=state) for at in range(2, 12)]
        assert error(torch.cat(out, dim=1), whole) <= F32
        state.truncate(9)
        assert error(model(tokens[:, 9:], state=state), whole[:, 9:]) <= F32


def test_padding_in_the_source_changes_nothing(model, given):
    source, present, tokens = given
    with torch.no_grad():
        batch = model(tokens, source=source, source_present=present)
        for row in range(3):
            alone = model(tokens[row : row + 1], source=source[row : row + 1, present[row]])
            assert error(batch[row : row + 1], alone) <= F32


def test_rows_of_a_state_can_be_chosen_with_their_source(model, given):
    source, present, tokens = given
    with torch.no_grad():
        state = model.new_state()
        model(tokens[:, :5], source=source, source_present=present, state=state)
        state.select([2, 0, 2])
        out = model(tokens[[2, 0, 2], 5:], state=state)
        assert error(out, model(tokens, source=source, source_present=present)[[2, 0, 2], 5:]) <= F32


def test_the_pattern_of_cross_attention_is_seen(model, given):
    source, present, tokens = given
    recorder = Recorder(["layers.1.cross.pattern", "encoder.layers.0.mixer.pattern", "layers.0.resid_cross"])
    with torch.no_grad():
        model(tokens, source=source, source_present=present, taps=recorder)
    pattern = recorder.values["layers.1.cross.pattern"]
    assert pattern.shape == (3, 4, 12, 9)
    assert torch.allclose(pattern.sum(-1), torch.ones(3, 4, 12))
    assert not pattern[1, :, :, 6:].any()
    assert recorder.values["encoder.layers.0.mixer.pattern"].shape == (3, 4, 9, 9)
    assert recorder.values["layers.0.resid_cross"].shape == (3, 12, 32)


def test_one_table_of_tokens_serves_both_stacks(model):
    assert model.encoder.embed.tokens.weight is model.embed.tokens.weight
    assert "encoder.embed.tokens.weight" not in dict(model.named_parameters())
    apart = Transformer(replace(model.config, share_tokens=False))
    assert "encoder.embed.tokens.weight" in dict(apart.named_parameters())


def test_what_is_missing_or_too_much_is_named(model, given, without_shape_checks):
    source, _, tokens = given
    with pytest.raises(ClearheadError, match="pass source="):
        model(tokens)
    state = model.new_state()
    model(tokens, source=source, state=state)
    with pytest.raises(ClearheadError, match="holds a source already"):
        model(tokens, source=source, state=state)
    with pytest.raises(ClearheadError, match="token 77 is not in"):
        model(tokens, source=source + 77 - source)
    with pytest.raises(ClearheadError, match=r"source_present has shape \(3, 4\)"):
        model(tokens, source=source, source_present=torch.ones(3, 4, dtype=torch.bool))


def test_a_failed_pass_leaves_no_source_behind(model, given):
    source, _, tokens = given
    state = model.new_state()
    with pytest.raises(ClearheadError):
        model(tokens + 50, source=source, state=state)
    assert not state.has_source
    with torch.no_grad():
        assert torch.equal(model(tokens, source=source, state=state), model(tokens, source=source))


def test_shared_layers_are_one_set_of_weights_and_several_layers(given):
    _, _, tokens = given
    one = block("causal", RotaryConfig())
    sharp = replace(one, mixer=replace(one.mixer, op=replace(one.mixer.op, scores=ScoresConfig(scale=1.0))))
    stack = StackConfig(embed=EMBED, blocks=(one, sharp, one), norm=NORM, share=(0, 0, 0))
    model = lively(TransformerConfig(d_model=32, decoder=stack))
    assert not any(name.startswith(("layers.1", "layers.2")) for name, _ in model.named_parameters())
    apart = Transformer(replace(model.config, decoder=replace(stack, share=None))).eval()
    for layer in apart.layers:
        layer.load_state_dict(model.layers[0].state_dict())
    apart.embed.load_state_dict(model.embed.state_dict())
    apart.norm.load_state_dict(model.norm.state_dict())
    with torch.no_grad():
        assert torch.equal(model(tokens), apart(tokens))
        state = model.new_state()
        steps = [model(tokens[:, at : at + 1], state=state) for at in range(12)]
        assert error(torch.cat(steps, dim=1), model(tokens)) <= F32
