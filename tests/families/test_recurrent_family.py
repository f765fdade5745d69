"""Recurrent networks of our own on disk: every kind is saved, read back the same, writes by hand and by beams, and is
looked into like any other. No published class computes them: `torch.nn` is their oracle.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import clearhead
from clearhead.config import TokenIds, TransformerConfig
from clearhead.errors import ClearheadError
from clearhead.families import FAMILIES
from clearhead.lens import attribution, edit, look
from clearhead.model.build import build
from clearhead.model.transformer import Transformer
from clearhead.recurrent import language_model, rnn_enc, rnn_search
from clearhead.taps import catalogue
from tests.oracles import error
from tests.tiny import lively

FAMILY, WORDS = "clearhead_recurrent", 24
IDS = TokenIds(pad=0, bos=1, eos=(2,), decoder_start=1)
CONFIGS: dict[str, TransformerConfig] = {
    "simple": language_model("simple", vocab_size=WORDS, d_model=10, gain=0.9, ids=IDS),
    "lstm": language_model("lstm", vocab_size=WORDS, d_model=10, n_layers=2, forget_bias=3.0, tie=True),
    "lstm of 1997": language_model("lstm_1997", vocab_size=WORDS, d_model=10),
    "gru": language_model("gru", vocab_size=WORDS, d_model=10, n_layers=3, ids=IDS),
    "RNNenc": rnn_enc(vocab_size=WORDS, d_model=10, ids=IDS),
    "RNNenc, words apart": rnn_enc(vocab_size=WORDS, d_model=10, d_hidden=7, source_vocab_size=19, ids=IDS),
    "RNNsearch": rnn_search(vocab_size=WORDS, d_model=10, ids=IDS),
    "RNNsearch, words apart": rnn_search(
        vocab_size=WORDS, d_model=10, d_attention=6, source_vocab_size=19, cell="lstm", ids=IDS
    ),
}
EVERY = pytest.mark.parametrize("name", list(CONFIGS))


def made(name: str) -> Transformer:
    model: Transformer = lively(build(CONFIGS[name]))  # type: ignore[assignment]
    return model


def asked(name: str, rows: int = 2) -> dict[str, Any]:
    torch.manual_seed(0)
    tokens = {"tokens": torch.randint(3, 19, (rows, 8))}
    return tokens | ({"source": torch.randint(3, 19, (rows, 6))} if name.startswith("RNN") else {})


def answered(model: Transformer, given: dict[str, Any]) -> torch.Tensor:
    rest = {name: value for name, value in given.items() if name != "tokens"}
    with torch.no_grad():
        out: torch.Tensor = model(given["tokens"], **rest)
    return out


@EVERY
def test_saved_and_read_back(name: str, tmp_path: Path) -> None:
    model, given = made(name), asked(name)
    clearhead.save(model, tmp_path / "one", family=FAMILY)
    again = clearhead.load(tmp_path / "one")
    assert again.config == CONFIGS[name]
    assert torch.equal(answered(again, given), answered(model, given))
    clearhead.save(again, tmp_path / "two")
    first, second = (load_file(tmp_path / part / "model.safetensors") for part in ("one", "two"))
    assert first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)
    one, two = (json.loads((tmp_path / part / "config.json").read_text()) for part in ("one", "two"))
    assert one == two and one["model_type"] == FAMILY


def test_an_lstm_on_disk_is_torchs(tmp_path: Path) -> None:
    """Two layers whose files go into `torch.nn.LSTM` tensor by tensor."""
    model, given = made("lstm"), asked("lstm")
    clearhead.save(model, tmp_path, family=FAMILY)
    file = load_file(tmp_path / "model.safetensors")
    oracle = torch.nn.LSTM(10, 10, num_layers=2, batch_first=True)
    for i in range(2):
        for theirs, ours in (("ih", "x_proj"), ("hh", "h_proj")):
            for kind in ("weight", "bias"):
                getattr(oracle, f"{kind}_{theirs}_l{i}").data.copy_(file[f"decoder.layers.{i}.cell.{ours}.{kind}"])
    table = file["decoder.embed_tokens.weight"]
    assert error(answered(model, given), oracle(table[given["tokens"]])[0] @ table.T) < 1e-5


def test_what_the_words_have_no_place_for() -> None:
    family = FAMILIES[FAMILY]
    raw = {"model_type": FAMILY, "cell_type": "elman"}
    with pytest.raises(ClearheadError, match="cell_type is 'elman'; understood are simple, lstm, lstm_1997, gru"):
        family.read(raw, "here")
    with pytest.raises(ClearheadError, match="'attention_sise'"):
        family.read({"model_type": FAMILY, "attention_sise": 3}, "here")


def written(name: str, model: Transformer, given: dict[str, Any], **options: Any) -> tuple[torch.Tensor, list[int]]:
    """What the model's text begins with, and the tokens it writes on: of a translator, its source is the prompt."""
    prompt = given["source"] if "source" in given else given["tokens"]
    (found,) = clearhead.generate(model, prompt.tolist(), stop_tokens=(), **options)
    return torch.tensor([[1]]) if "source" in given else given["tokens"], list(found.tokens)


@EVERY
def test_writing_with_a_state_is_writing_without(name: str) -> None:
    """Greedily, token by token."""
    model, given = made(name), asked(name, rows=1)
    text, found = written(name, model, given, max_new_tokens=5, temperature=0)
    n_before = text.shape[1]
    for _ in range(5):
        following = answered(model, {**given, "tokens": text})[:, -1].argmax(-1, keepdim=True)
        text = torch.cat([text, following], dim=1)
    assert found == text[0, n_before:].tolist()


@EVERY
def test_beams(name: str) -> None:
    """Two steps of as many beams as there are words find the likeliest pair of words."""
    model, given = made(name), asked(name, rows=1)
    start, found = written(name, model, given, max_new_tokens=2, n_beams=WORDS)
    first = torch.log_softmax(answered(model, {**given, "tokens": start})[0, -1], -1)
    longer = torch.cat([start.expand(WORDS, -1), torch.arange(WORDS)[:, None]], dim=1)
    copied = {key: value.expand(WORDS, -1) for key, value in given.items()} | {"tokens": longer}
    pairs = first[:, None] + torch.log_softmax(answered(model, copied)[:, -1], -1)
    assert found == list(divmod(int(pairs.argmax()), WORDS))


@EVERY
def test_every_place_can_be_looked_at_and_changed(name: str) -> None:
    model, given = made(name), asked(name)
    model = model.double()
    plain = answered(model, given)
    for address in catalogue(model):
        if ".mixer." not in address:
            continue
        seen = look(model, given, address)[address]
        assert seen.isfinite().all()
        changed = edit(model, given, {address: lambda value: value * 0.5})
        assert error(changed, plain) > 1e-9, address
    with torch.no_grad():
        same = edit(model, given, {"layers.*.mixer.hidden": lambda value: value})
    assert error(same, plain) <= 1e-12


@EVERY
def test_what_it_costs(name: str) -> None:
    model = made(name)
    size = {"source": 6} if name.startswith("RNN") else {}
    told = clearhead.cost(CONFIGS[name], context=8)
    assert told.counts.parameters.total == sum(p.numel() for p in model.parameters())
    assert told.counts.flops(2, 8, **size).total > 0
    assert str(model.describe())


def test_the_stream_is_no_sum() -> None:
    with pytest.raises(ClearheadError, match=r"layers.0.mixer takes the place of the stream"):
        attribution(made("gru"), asked("gru")["tokens"][:1], target=3)
