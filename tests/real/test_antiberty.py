"""AntiBERTy, a BERT of antibodies in a pickle, against its own package's way of filling in residues."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
import torch

import clearhead
from clearhead.checkpoints import open_checkpoint
from tests.oracles import REAL_TOLERANCE

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("antiberty")]

HEAVY = (
    "EVQLVQSGPEVKKPGTSVKVSCKASGFTFMSSAVQWVRQARGQRLEWIGWIVIGSGNTNYAQKFQERVTITRDMSTSTAYMELSSLRSEDTAVYYCAAPYCSS"
    "ISCNDGFDIWGQGTMVTVS"
)
LIGHT = (
    "DVVMTQTPFSLPVSLGDQASISCRSSQSLVHSNGNTYLHWYLQKPGQSPKLLIYKVSNRFSGVPDRFSGSGSGTDFTLKISRVEAEDLGVYFCSQSTHVPYTFGGGTKLEIK"
)
HIDDEN = {HEAVY: (3, 21, 35, 49, 70, 95, 110), LIGHT: (5, 22, 40, 61, 87, 100)}


@pytest.fixture(scope="module")
def folder() -> Path:
    with open_checkpoint("antiberty") as checkpoint:
        return Path(checkpoint.where)


@pytest.fixture(scope="module")
def ours():
    return clearhead.load("antiberty")


@pytest.fixture(scope="module")
def theirs(folder):
    """The package's own model and its own way of asking it.

    Its `from_pretrained` fails in `transformers` 5, which wants to know what is tied: nothing that is not in the file.
    """
    from antiberty import AntiBERTy, AntiBERTyRunner
    from transformers import BertConfig, BertTokenizer

    class Today(AntiBERTy):
        all_tied_weights_keys: ClassVar = {}

    runner = object.__new__(AntiBERTyRunner)
    runner.device = torch.device("cpu")
    runner.tokenizer = BertTokenizer(vocab=str(folder.parent / "vocab.txt"), do_lower_case=False)
    runner.model = Today(BertConfig.from_pretrained(folder)).eval()
    tensors = torch.load(folder / "pytorch_model.bin", weights_only=True, map_location="cpu")
    assert not runner.model.load_state_dict(tensors, strict=False).missing_keys
    return runner


def masked(sequence: str) -> list[str]:
    return ["[MASK]" if i in HIDDEN[sequence] else residue for i, residue in enumerate(sequence)]


@pytest.mark.parametrize("sequence", [HEAVY, LIGHT])
def test_tokens_are_the_packages(ours, theirs, sequence):
    text = " ".join(masked(sequence))
    assert ours.tokenizer.encode(text, parse_special=True) == theirs.tokenizer(text)["input_ids"]
    assert ours.tokenizer.encode(sequence) == theirs.tokenizer(" ".join(sequence))["input_ids"]


def test_masked_residues_are_predicted_as_by_its_package(ours, theirs):
    batch = theirs.tokenizer([" ".join(masked(s)) for s in (HEAVY, LIGHT)], padding=True, return_tensors="pt")
    tokens, present = batch["input_ids"], batch["attention_mask"].bool()
    with torch.no_grad():
        there, here = theirs.model(tokens, attention_mask=batch["attention_mask"]), ours(tokens, present=present)
    assert here._fields == ("tokens", "species", "chain", "graft")
    # Absolute; measured: 0.
    assert float((here.tokens - there.prediction_logits)[present].abs().max()) <= REAL_TOLERANCE
    for name in here._fields[1:]:
        assert float((getattr(here, name) - there[f"{name}_logits"]).abs().max()) <= REAL_TOLERANCE

    no_marks = here.tokens.index_fill(-1, torch.tensor(theirs.tokenizer.all_special_ids), -torch.inf)
    is_masked = tokens == theirs.tokenizer.mask_token_id
    assert int(is_masked.sum()) == 13
    filled = torch.where(is_masked, no_marks.argmax(-1), tokens)
    ours_as_text = [
        "".join(ours.tokenizer.pieces(row[kept][1:-1].tolist())) for row, kept in zip(filled, present, strict=True)
    ]
    asked = ["".join("_" if i in HIDDEN[s] else residue for i, residue in enumerate(s)) for s in (HEAVY, LIGHT)]
    assert ours_as_text == theirs.fill_masks(asked)
    right = [a == b for a, b in zip(HEAVY + LIGHT, "".join(ours_as_text), strict=True)]
    assert right.count(False) <= 3


def test_species_and_chain(ours):
    """Heads that the package has of its own: the first is a human heavy chain, the second a mouse's light one."""
    species, chains = "Camel Human Mouse Rabbit Rat Rhesus".split(), ("Heavy", "Light")
    found = []
    for sequence in (HEAVY, LIGHT):
        with torch.no_grad():
            out = ours(torch.tensor([ours.tokenizer.encode(sequence)]))
        found.append((species[int(out.species.argmax())], chains[int(out.chain.argmax())]))
    assert found == [("Human", "Heavy"), ("Mouse", "Light")]


def test_saved_as_safetensors_it_is_the_same_model(ours, tmp_path):
    clearhead.save(ours, tmp_path / "saved")
    again = clearhead.load(tmp_path / "saved")
    tokens = torch.tensor([again.tokenizer.encode(LIGHT)])
    with torch.no_grad():
        assert torch.equal(again(tokens).tokens, ours(tokens).tokens)
        assert torch.equal(again(tokens).species, ours(tokens).species)
