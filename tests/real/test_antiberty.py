"""AntiBERTy, a BERT of antibodies in a pickle, against its own package's way of filling in residues."""

from __future__ import annotations

from pathlib import Path

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
    """The weights in the class that the package builds on. Its own class derives from one that `transformers` 5 has
    changed: its `from_pretrained` fails."""
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig.from_pretrained(folder)).eval()
    tensors = torch.load(folder / "pytorch_model.bin", weights_only=True)
    left = model.load_state_dict(tensors, strict=False)
    assert not left.missing_keys
    return model


@pytest.fixture(scope="module")
def their_tokenizer(folder):
    from transformers import BertTokenizer

    return BertTokenizer(vocab=str(folder.parent / "vocab.txt"), do_lower_case=False)


def masked(sequence: str) -> list[str]:
    return ["[MASK]" if i in HIDDEN[sequence] else residue for i, residue in enumerate(sequence)]


@pytest.mark.parametrize("sequence", [HEAVY, LIGHT])
def test_tokens_are_the_packages(ours, their_tokenizer, sequence):
    text = " ".join(masked(sequence))
    assert ours.tokenizer.encode(text, parse_special=True) == their_tokenizer(text)["input_ids"]
    assert ours.tokenizer.encode(sequence) == their_tokenizer(" ".join(sequence))["input_ids"]


def test_masked_residues_are_predicted_as_by_its_package(ours, theirs, their_tokenizer):
    """Its `fill_masks`: the likeliest token that is no mark, of a padded batch."""
    batch = their_tokenizer([" ".join(masked(s)) for s in (HEAVY, LIGHT)], padding=True, return_tensors="pt")
    tokens, present = batch["input_ids"], batch["attention_mask"].bool()
    with torch.no_grad():
        logits = theirs(**batch).logits
        out = ours(tokens, present=present)
    assert out._fields == ("tokens", "species", "chain", "graft")
    # Absolute; measured: 1e-5.
    assert float((out.tokens - logits)[present].abs().max()) <= REAL_TOLERANCE
    marks = their_tokenizer.all_special_ids
    hidden = tokens == their_tokenizer.mask_token_id
    assert int(hidden.sum()) == 13
    filled = [x.index_fill(-1, torch.tensor(marks), -torch.inf).argmax(-1)[hidden] for x in (out.tokens, logits)]
    assert torch.equal(*filled)
    true = torch.tensor([their_tokenizer.convert_tokens_to_ids(s[i]) for s in (HEAVY, LIGHT) for i in HIDDEN[s]])
    assert int((filled[0] == true).sum()) >= 10


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
