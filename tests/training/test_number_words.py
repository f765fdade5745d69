"""Numbers in words: what is held out, what the words are made of, and a small model that learns to turn them round."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from num2words import num2words

import clearhead
from clearhead.errors import ClearheadError
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.model.build import build
from clearhead.training.config import EveryConfig, ModelConfig, RunConfig, TrainConfig
from clearhead.training.corpora import number_words
from clearhead.training.corpora.number_words import GERMAN_UNITS, HELD_OUT, LEARNT, PIECES, SEED, gather, numbers
from clearhead.training.data.tokenizers import TokenizerConfig, train_tokenizer
from clearhead.training.measures.alignment import align
from clearhead.training.measures.pairs import measure_pairs
from clearhead.training.models import model_config, start_model
from clearhead.training.recipes.transformer_2017 import transformer_2017
from clearhead.training.run import train

TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_tokenizer([], TokenizerConfig(kind="pieces", pieces=PIECES))


def said(tokenizer: Tokenizer, text: str) -> list[str]:
    return [piece.removeprefix("·") for piece in tokenizer.pieces(tokenizer.encode(text, bos=False))]


def test_units_und_and_tens_are_apart(words: Tokenizer) -> None:
    for number in range(21, 100):
        if number % 10:
            parts = [GERMAN_UNITS[number % 10 - 1], "und", TENS[number // 10 - 2]]
            assert said(words, num2words(number, lang="de")) == parts
            assert said(words, num2words(1000 * number + 300, lang="de")) == [*parts, "tausend", "drei", "hundert"]
    assert said(words, "siebenhunderteinundzwanzigtausend") == "sieben hundert ein und zwanzig tausend".split()
    assert said(words, "de: twenty-one; one")[1:] == ["twenty", "-one", ";", "one"]
    assert not [piece for piece in PIECES for unit in GERMAN_UNITS if f"{unit}und" in piece or f"und{unit}" in piece]


def test_numbers_come_back(words: Tokenizer) -> None:
    """All up to a thousand in German, and some of each kind in each language: words are made of no other parts."""
    rng = random.Random(1)
    some = [*range(0, 1000, 13), *range(1000, 10**6, 17_000), *(rng.randrange(10**6) for _ in range(60))]
    for language, found in (("en", some), ("de", [*range(1000), *some]), ("fr", [*range(60, 100), *some])):
        for number in found:
            text = num2words(number, lang=language)
            ids = words.encode(text)
            assert words.decode(ids, skip_special=True) == text
            assert words.unk_id not in ids and ids[-1] == words.eos_ids[0]


def test_numbers_are_held_out_whole() -> None:
    learnt, held = numbers(random.Random(SEED))
    assert not set(learnt) & set(held)
    for digits in range(1, 7):
        for found, sizes in ((learnt, LEARNT), (held, HELD_OUT)):
            assert len([n for n in found if len(str(n)) == digits]) == sizes[digits]
    assert set(range(21)) <= set(learnt)
    assert sorted({*learnt, *held} & set(range(1000))) == list(range(1000))
    assert numbers(random.Random(SEED)) == (learnt, held)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ninety numbers below a hundred, of which ten are held out, and a few lists."""
    monkeypatch.setattr(number_words, "DIGITS", (1, 2))
    monkeypatch.setattr(number_words, "HELD_OUT", {1: 0, 2: 10})
    monkeypatch.setattr(number_words, "LEARNT", {1: 10, 2: 80})
    monkeypatch.setattr(number_words, "LISTS", 20)
    monkeypatch.setattr(number_words, "HELD_OUT_LISTS", 5)


def rows(path: Path) -> list[tuple[str, str]]:
    head, *lines = path.read_text().splitlines()
    assert head == "source\ttarget"
    return [(source, target) for source, target in (line.split("\t") for line in lines)]


@pytest.mark.usefixtures("few")
def test_the_tables_hold_each_number_in_each_language(tmp_path: Path) -> None:
    gather(tmp_path, lambda text: None)
    learnt = rows(tmp_path / "learnt.tsv")
    held = {language: rows(tmp_path / f"held_out_{language}.tsv") for language in ("de", "fr")}
    assert len(learnt) == 2 * (90 + 20)
    assert [len(held[language]) for language in held] == [10, 10]
    assert ("de: twenty; one", "zwanzig; eins") not in held["de"]
    english = {number: num2words(number) for number in range(100)}
    hidden = {source.removeprefix("de: ") for source, _ in held["de"]}
    for source, target in [*learnt, *held["de"], *held["fr"], *rows(tmp_path / "held_out_lists.tsv")]:
        language, parts = source[:2], source[4:].split("; ")
        found = [number for part in parts for number in english if english[number] == part]
        assert target == "; ".join(num2words(number, lang=language) for number in found)
    assert not [source for source, _ in learnt if set(source[4:].split("; ")) & hidden]
    assert all(set(source[4:].split("; ")) <= hidden for source, _ in rows(tmp_path / "held_out_lists.tsv"))


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(number_words.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ClearheadError, match=r'num2words.*pip install "clearhead\[train\]"'):
        gather(tmp_path, lambda text: None)


def test_the_recipe_is_the_transformer_of_2017(words: Tokenizer) -> None:
    config = transformer_2017()
    model = start_model(config, words)
    assert sum(p.numel() for p in model.parameters()) < 1_500_000
    ids = model_config(config, words).ids
    assert (ids.pad, ids.decoder_start, ids.eos) == (words.pad_id, words.pad_id, words.eos_ids)
    assert config.optim.betas == (0.9, 0.98) and config.optim.eps == 1e-9
    assert config.schedule.kind == "inverse_sqrt" and config.objective.label_smoothing == 0.1


def small(folder: Path) -> TrainConfig:
    """The recipe's model, on numbers below a hundred."""
    config = transformer_2017()
    return replace(
        config,
        data=replace(config.data, corpus=replace(config.data.corpus, path=str(folder))),
        batch=replace(config.batch, rows=55, length=32),
        schedule=replace(config.schedule, warmup=50),
        run=RunConfig(steps=300),
        every=EveryConfig(log=100, evaluate=0, save=0),
    )


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_small_run_learns_to_turn_numbers_round(tmp_path: Path) -> None:
    """What it has seen it gives back whole; and transformers writes with the checkpoint what is written here."""
    from transformers import MarianMTModel

    (tmp_path / "data").mkdir()
    gather(tmp_path / "data", lambda text: None)
    done = train(small(tmp_path / "data"), out=tmp_path / "run", quiet=True)
    model = clearhead.load(done.checkpoint)
    learnt = [pair for pair in rows(tmp_path / "data" / "learnt.tsv") if ";" not in pair[0]]
    scores = measure_pairs(model, learnt)
    assert scores.exact > 0.95
    assert done.report is not None and done.report["pairs"] == 2 * (10 + 5)
    theirs = MarianMTModel.from_pretrained(done.checkpoint, dtype=torch.float32).eval()
    for source, written in list(zip(scores.sources, scores.written, strict=True))[:20]:
        ids = theirs.generate(torch.tensor([model.tokenizer.encode(source)]), max_new_tokens=12, num_beams=1)
        assert model.tokenizer.decode(ids[0].tolist(), skip_special=True) == written


def test_an_alignment_is_what_the_heads_that_look_at_the_source_see(words: Tokenizer) -> None:
    config = transformer_2017()
    assert isinstance(config.model, ModelConfig)
    model = build(model_config(config, words)).eval()
    model.tokenizer = words
    found = align(model, "de: twenty-one", "einundzwanzig")
    assert found.source == ("de:", "twenty", "-one", "</s>")
    assert found.target == ("ein", "und", "zwanzig")
    assert found.patterns_LHTS.shape == (2, 4, 3, 4)
    torch.testing.assert_close(found.mean_TS.sum(dim=-1), torch.ones(3))
    with pytest.raises(ClearheadError, match="has no encoder"):
        align(
            build(replace(model.config, encoder=None, decoder=model.config.encoder, heads=model.config.heads)), "a", "b"
        )
