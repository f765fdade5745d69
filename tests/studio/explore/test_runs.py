"""Runs: what they keep is what `clearhead.look` sees, they are found again, bounded, cancelled, and let go."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event, Thread

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.studio.explore import runs as runs_module
from clearhead.studio.explore.ablations import Ablation
from clearhead.studio.explore.coding import decode
from clearhead.studio.explore.given import MAX_CHARACTERS, Given
from clearhead.studio.explore.parts import record_of
from clearhead.studio.explore.runs import Runs
from clearhead.studio.models import Models
from tests import tiny
from tests.studio.explore.opened import TEXT, ask_in, looked, made, studio, with_folder

ADDRESSES = ("layers.2.mixer.pattern", "layers.0.ffn.post", "layers.3.mixer.q", "final", "embed.front")


def test_what_is_kept_is_what_look_sees() -> None:
    run = made(capture=ADDRESSES[:2])
    seen = looked(run, *ADDRESSES)
    for address in ADDRESSES:
        assert torch.equal(studio().runs.exact(run.id, address), seen[address]), address


def test_patterns_kept_as_bytes_are_exact_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_module, "EXACT", 0)
    run = made(text=TEXT + " and", capture=("*.pattern",))
    address = "layers.1.mixer.pattern"
    code, seen = studio().runs.shares(run.id, address), looked(run, address)[address]
    assert code.dtype == torch.uint8 and address not in run.values
    assert (decode(code).sqrt() - seen.sqrt()).abs().max() <= 1 / 255
    assert torch.equal(studio().runs.exact(run.id, address), seen)


def test_an_id_is_what_was_run() -> None:
    one = made()
    assert made().id == one.id and len(one.id) == 64
    assert made(text=TEXT + "!").id != one.id
    assert made("clear-2l", text=TEXT).id != one.id
    assert made(text=TEXT, ablate=(Ablation(layer=0),)).id != one.id


def test_a_run_with_something_taken_out() -> None:
    off = (Ablation(layer=1, heads=(2,)), Ablation(layer=2, part="ffn"), Ablation(layer=0, keys=(1,), queries=(5, 6)))
    run = made(text=TEXT, ablate=off)
    assert torch.equal(studio().runs.exact(run.id, "layers.1.mixer.z")[0, 2], torch.zeros(len(run.tokens), 64))
    assert not studio().runs.exact(run.id, "layers.2.ffn.out").any()
    pattern_HTS = studio().runs.exact(run.id, "layers.0.mixer.pattern")[0]
    assert not pattern_HTS[:, [5, 6], 1].any() and bool(pattern_HTS[:, 4, 1].all())
    assert torch.equal(studio().runs.exact(run.id, "final"), looked(run, "final")["final"])


@pytest.mark.parametrize(
    ("ablation", "words"),
    [
        (Ablation(layer=9), "there is no layer 9; there are 0 to 3"),
        (Ablation(layer=0, part="cross"), "has no cross; it has mixer, ffn"),
        (Ablation(layer=0, heads=(7,)), "has heads 0 to 3, not 7"),
        (Ablation(layer=0, stack="encoder"), "has no stack 'encoder'"),
        (Ablation(layer=0, keys=(99,)), "has positions"),
    ],
)
def test_what_cannot_be_taken_out(ablation: Ablation, words: str) -> None:
    with pytest.raises(ClearheadError, match=words):
        made(text=TEXT, ablate=(ablation,))


def test_tokens_stand_in_the_text() -> None:
    run = made(text="a  b\n<script>alert(1)</script> שלום \U0001f600")
    pieces = [token.text for token in run.tokens]
    assert not any("\n" in text for text in pieces) and "⏎" in "".join(pieces)
    assert all(0 <= one.start <= one.end for one in run.tokens if one.start >= 0)
    text = run.given.text
    assert text is not None and run.tokens[-1].end == len(text)


def test_hidden_words_are_tokens_where_a_model_fills_them_in() -> None:
    run = made("clear-bert", text="The [MASK] sat.")
    assert "[MASK]" in [token.text.strip("·") for token in run.tokens]
    assert "<|endoftext|>" not in [token.text for token in made(text="an <|endoftext|> end").tokens[1:]]


def test_a_source_alone_is_answered() -> None:
    run = made("clear-translate", source="de: forty-seven")
    assert run.given.text == "siebenundvierzig"
    assert [token.text.strip("·") for token in run.tokens[1:]] == ["sieben", "und", "vierzig"]
    crossed = studio().runs.exact(run.id, "layers.0.cross.pattern")
    assert crossed.shape == (1, 4, len(run.tokens), len(run.sources))
    seen = looked(run, "layers.0.cross.pattern", "encoder.layers.1.mixer.pattern")
    assert all(torch.equal(studio().runs.exact(run.id, address), value) for address, value in seen.items())


@pytest.mark.parametrize(
    ("model", "given"), [("clear-vit", {"picture": "bag"}), ("clear-speech", {"sound": "rising tone"})]
)
def test_pictures_and_sounds(model: str, given: dict[str, str]) -> None:
    run = made(model, **given)
    kinds = record_of(studio().models.get(model), model)["attention"]
    for kind in kinds:
        address = f"{kind['layers'][0]['at']}.pattern"
        value = studio().runs.exact(run.id, address)[0]
        assert value.shape[1:] == (len(run.slots(kind["queries"])), len(run.slots(kind["keys"])))
        assert torch.equal(value, looked(run, address)[address][0])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"text": ""}, "the text is empty"),
        ({"text": "x" * (MAX_CHARACTERS + 1)}, "characters"),
        ({"text": "word " * 900}, "this model's window 512; shorten it"),
        ({"ids": (5000,)}, "5000"),
        ({"text": "half \ud83d"}, "surrogate"),
    ],
)
def test_what_cannot_be_read(given: dict[str, object], words: str) -> None:
    with pytest.raises(ClearheadError, match=words):
        made(**given)


@pytest.mark.parametrize(
    "text", ["\x00\x00", "a" * 400, "\u202eabc", "<script>", " ", "\n", "\U0001f600\u200d\U0001f525"]
)
def test_odd_texts_are_read(text: str) -> None:
    run = made(text=text)
    assert all(token.text.isprintable() for token in run.tokens)


def test_too_much_is_refused_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_module, "MAX_RECORD", 1000)
    with pytest.raises(UsageError, match="GB of this run"):
        made(text=TEXT + " 1", capture=("*.pattern",))
    monkeypatch.setattr(runs_module, "MAX_RECORD", 1 << 30)
    monkeypatch.setattr(runs_module, "MAX_SECONDS", 1e-9)
    with pytest.raises(UsageError, match="minutes on this machine"):
        made(text=TEXT + " 2")


def test_nobody_waits() -> None:
    gone = Event()
    gone.set()
    with pytest.raises(UsageError, match="cancelled"):
        studio().runs.make("clear-gpt", Given(text=TEXT + " 3"), cancelled=gone)
    known = set(studio().runs._runs)
    waiting = Waiting(after=3)
    with pytest.raises(UsageError, match="cancelled"):
        studio().runs.make("clear-gpt", Given(text=TEXT + " 4"), capture=("*",), cancelled=waiting)
    assert set(studio().runs._runs) == known and waiting.asked == 4


class Waiting(Event):
    """An event that is set once it has been asked about so often."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after, self.asked = after, 0

    def is_set(self) -> bool:
        self.asked += 1
        return self.asked > self.after


def test_the_least_recently_used_goes_first() -> None:
    models = studio().models
    one = Runs(models).make("clear-gpt", Given(text=TEXT), capture=("*.pattern",)).n_bytes
    runs = Runs(models, max_bytes=int(2.6 * one))
    first, second, third = (TEXT.replace("old", word) for word in ("new", "big", "red"))
    ids = [runs.make("clear-gpt", Given(text=text), capture=("*.pattern",)).id for text in (first, second)]
    runs.get(ids[0])
    runs.make("clear-gpt", Given(text=third), capture=("*.pattern",))
    assert runs.get(ids[0]).given.text == first
    with pytest.raises(UsageError, match="no longer kept"):
        runs.get(ids[1])
    # One that is larger than all the room there is loses what it used least recently.
    runs.record(ids[0], ["layers.*.ffn.post", "layers.*.ffn.pre"])
    assert runs.get(ids[0]).n_bytes <= 2.6 * one


def test_several_threads_at_once() -> None:
    found: list[str] = []
    threads = [
        Thread(target=lambda: found.append(made(text=TEXT + " at once", capture=("*.pattern",)).id)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1


IDS = {"decoder": {"ids": (5, 9, 3, 7, 2, 8)}, "encoder": {"ids": (5, 9, 3, 7, 2, 8)}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    ["gemma3_text", "mixtral", "deepseek_v3", "mamba", "mamba2", "jamba", "qwen3_moe", "gpt_oss", "modernbert"],
)
def test_every_kind_of_model(family: str, tmp_path: Path) -> None:
    record = tiny.families()[family][0]
    record.make(**next(iter(record.configs.values()))).save_pretrained(tmp_path)
    own, name = with_folder(tmp_path)
    model = own.models.get(name)
    run = own.runs.make(name, Given(ids=(5, 9, 3, 7, 2, 8)), capture=("*",))
    seen = clearhead.look(model, run.inputs(model), "*")
    told = {tensor for tensor in run.values if tensor != "logits"}
    assert told == set(seen) - {"logits"} or told == set(seen)
    assert all(
        torch.equal(run.values[address], seen[address].float()) for address in told if seen[address].is_floating_point()
    )
    found = record_of(model, name)
    assert found["can"]["attention"] == any(address.endswith(".pattern") for address in seen)
    assert found["can"]["experts"] == any(address.endswith(".router_logits") for address in seen)
    assert found["can"]["states"] == any(address.endswith(".state") for address in seen)


@pytest.mark.slow
def test_two_towers(tmp_path: Path) -> None:
    tiny.make("clip").save_pretrained(tmp_path)
    size = {"height": 32, "width": 32}
    kind = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 32}, "crop_size": size}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(kind))
    own, name = with_folder(tmp_path)
    run = own.runs.make(name, Given(ids=(0, 5, 9, 98), picture="landscape"), capture=("*.pattern",))
    model = own.models.get(name)
    for kind_of in record_of(model, name)["attention"]:
        for layer in kind_of["layers"]:
            pattern = run.values[f"{layer['at']}.pattern"][0]
            assert pattern.shape[1:] == (len(run.slots(kind_of["queries"])), len(run.slots(kind_of["keys"])))
    assert [one.kind for one in run.reads] == ["text", "picture"] and run.reads[1].grid == (4, 4)
    found = ask_in(own, "explore.rollout", run=run.id, query=3, part="image")
    assert found.arrays["row"].sum() == pytest.approx(1)
    assert record_of(model, name)["can"]["pictures"] and not record_of(model, name)["can"]["predict"]


def test_a_run_of_weights_that_were_trained_on_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    run = made(text=TEXT + " trained on")
    monkeypatch.setattr(Models, "stamp", lambda self, id: 7)
    with pytest.raises(UsageError, match="no longer kept"):
        studio().runs.get(run.id)
    assert made(text=TEXT + " trained on").id != run.id


def test_a_short_pass_says_nothing_of_a_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(studio().models)
    runs.make("clear-gpt", Given(text="a"))
    assert not runs._rates
    monkeypatch.setattr(runs_module, "TELLING", 0.0)
    runs.make("clear-gpt", Given(text="a b"))
    assert runs._rates["clear-gpt"] >= runs_module.SLOWEST
