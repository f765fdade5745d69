"""Folding and centring (case H23): the same outputs, and nothing but a division left in the norms."""

from __future__ import annotations

import pytest
import torch

import clearhead
from clearhead.config import LearnedPositions
from clearhead.errors import ClearheadError
from clearhead.lens import look
from clearhead.lens.fold import fold
from tests.families.pairs import make_pair
from tests.lens.placed import NORMS, RMS, TOKENS, placed
from tests.oracles import TOLERANCE, error

F32, F64 = TOLERANCE[torch.float32], TOLERANCE[torch.float64]


def logits(model, tokens=TOKENS):
    with torch.no_grad():
        return model(tokens)


def division(norm, x):
    """What a norm is when nothing but the division is left of it."""
    x = x - x.mean(-1, keepdim=True) if norm.config.kind == "layer" else x
    return x / (x.square().mean(-1, keepdim=True) + norm.config.eps).sqrt()


@pytest.mark.parametrize(
    "case", [("gpt2", "plain"), ("llama", "grouped"), ("gemma3_text", "five_to_one")], ids="-".join
)
def test_h23(case, tmp_path):
    pair = make_pair(*case, tmp_path)
    model, tokens = pair.ours, pair.inputs.tokens
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plain = logits(model, tokens)
    folded = fold(model)
    assert error(logits(folded, tokens), plain) <= F32
    assert error(logits(folded, tokens).log_softmax(-1), plain.log_softmax(-1)) <= F32
    last = f"layers.{len(model.layers) - 1}.resid_post"
    # final_norm(resid_final) @ W_U + b_U == logits, and the final norm is a division alone.
    final = division(folded.norm, look(folded, tokens, last)[last])
    bias = 0 if folded.head.bias is None else folded.head.bias.detach()
    assert error(final @ folded.unembedding.detach().T * folded.head.config.scale + bias, plain) <= F32
    assert error(look(folded, tokens, "final")["final"], final) <= F32

    centred = fold(model, centre_logits=True)
    moved = logits(centred, tokens) - plain
    assert error(moved, moved.mean(-1, keepdim=True).expand_as(moved)) <= F32
    assert float(moved.abs().max()) > 1e-3
    assert error(logits(centred, tokens).mean(-1), torch.zeros(tokens.shape)) <= F32
    assert error(logits(centred, tokens).log_softmax(-1), plain.log_softmax(-1)) <= F32

    if model.norm.config.kind == "rms":
        with pytest.raises(ClearheadError, match="RMSNorm lets the stream's mean through"):
            fold(model, centre=True)
    else:
        centred = fold(model, centre=True)
        assert error(logits(centred, tokens), plain) <= F32
        for name, value in look(centred, tokens, "embed", "layers.*.resid_*", "layers.*.out").items():
            assert error(value.mean(-1), torch.zeros(value.shape[:2])) <= F32, name
        seen = look(model, tokens, last)[last]
        assert error(look(centred, tokens, last)[last], seen - seen.mean(-1, keepdim=True)) <= F32

    # The model itself is as it was, and the new one shares no memory that a change could reach it through.
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        for parameter in folded.parameters():
            parameter.fill_(0.5)
    assert torch.equal(logits(model, tokens), plain)


def test_what_is_shared_stays_shared(tmp_path):
    pair = make_pair("t5", "plain", tmp_path)
    assert pair.ours.encoder.embed.tokens.weight is pair.ours.embed.tokens.weight
    folded = fold(pair.ours)
    assert folded.encoder.embed.tokens.weight is folded.embed.tokens.weight
    assert folded.head.weight is not None and not folded.norm.weight.sub(1).any()


def test_folded_weights_are_the_products():
    model = placed("pre")
    folded = fold(model)
    block, new = model.layers[1], folded.layers[1]
    norm = block.mixer_norm.pre
    assert error(new.mixer.q_proj.weight, block.mixer.q_proj.weight * norm.weight) <= F64
    q_bias = block.mixer.q_proj.bias + block.mixer.q_proj.weight @ norm.bias
    assert error(new.mixer.q_proj.bias, q_bias) <= F64
    for norm in (new.mixer_norm.pre, new.ffn_norm.pre, folded.norm):
        assert bool((norm.weight == 1).all()) and not norm.bias.any()
    assert error(new.mixer.o_proj.weight, block.mixer.o_proj.weight) == 0


@pytest.mark.parametrize("placement", ["pre", "parallel", "sandwich", "out"])
def test_outputs_stay(placement):
    model = placed(placement)
    assert error(logits(fold(model)), logits(model)) <= F64
    folded = fold(model)
    if placement == "sandwich":  # what stands after an operation stays as it is
        assert torch.equal(folded.layers[0].mixer_norm.out.weight, model.layers[0].mixer_norm.out.weight)
        assert bool((folded.layers[0].mixer_norm.pre.weight == 1 - RMS.offset).all())
    if placement == "out":
        assert folded.layers[0].mixer.q_proj.bias is not None and bool((folded.norm.weight == 1).all())


def test_a_folded_model_saves_and_loads_in_transformers(tmp_path):
    from transformers import AutoModelForCausalLM

    pair = make_pair("llama", "grouped", tmp_path / "made")
    clearhead.save(fold(pair.ours), tmp_path / "folded")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "folded").eval()
    plain = logits(pair.ours, pair.inputs.tokens)
    with torch.no_grad():
        assert error(theirs(pair.inputs.tokens).logits, plain) <= F32
    assert bool((theirs.model.norm.weight == 1).all())


def test_a_place_for_a_new_bias_is_not_invented(tmp_path):
    """GPT-2's file has none for the head."""
    pair = make_pair("gpt2", "plain", tmp_path / "made")
    with pytest.raises(ClearheadError, match="can't be written"):
        clearhead.save(fold(pair.ours), tmp_path / "folded")


def test_what_is_refused(tmp_path):
    assert set(NORMS) >= {"post"}
    with pytest.raises(ClearheadError, match="norms stand after"):
        fold(placed("post"))
    with pytest.raises(ClearheadError, match="embedding writes is not its weights alone"):
        fold(placed("pre"), centre=True)  # its embedding is normed
    capped = make_pair("gemma2", "turns", tmp_path / "gemma2")
    with pytest.raises(ClearheadError, match="soft-cap"):
        fold(capped.ours, centre_logits=True)
    seeing = make_pair("vit", "classifier", tmp_path / "vit")
    with pytest.raises(ClearheadError, match="no vocabulary head"):
        fold(seeing.ours, centre_logits=True)
    assert isinstance(placed("pre").config.stack.embed.positions, LearnedPositions)
    towers = make_pair("clip", next(iter(_clip())), tmp_path / "clip")
    with pytest.raises(ClearheadError, match="two towers"):
        fold(towers.ours)


def _clip():
    from tests import tiny

    return tiny.families()["clip"][0].configs
