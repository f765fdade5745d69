"""Contact maps against `transformers`, whose head reads the same patterns."""

from __future__ import annotations

import json

import pytest
import torch

import clearhead
from clearhead.cli import main
from tests import tiny
from tests.oracles import error


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proteins")
    theirs = tiny.make("esm", "masked")
    theirs.set_attn_implementation("eager")
    with torch.no_grad():
        theirs.esm.contact_head.regression.weight *= 20  # patterns are small
    theirs.save_pretrained(folder)
    return theirs, clearhead.load(folder)


def protein(n: int) -> torch.Tensor:
    """`n` residues between the marks for start (0) and end (2)."""
    residues = torch.randint(4, 24, (n,), generator=torch.Generator().manual_seed(n))
    return torch.cat([torch.tensor([0]), residues, torch.tensor([2])])


def test_one_protein(pair):
    theirs, ours = pair
    tokens = protein(18)[None]
    found = clearhead.contacts(ours, tokens)
    assert found.shape == (1, 18, 18)
    assert found.std() > 0.05
    assert torch.allclose(found, found.mT, atol=1e-6)
    assert error(found, theirs.predict_contacts(tokens, torch.ones_like(tokens)).detach()) <= 1e-5


def test_a_padded_batch(pair):
    theirs, ours = pair
    proteins = [protein(18), protein(11)]
    tokens = torch.nn.utils.rnn.pad_sequence(proteins, batch_first=True, padding_value=1)
    present = tokens != 1
    found = clearhead.contacts(ours, {"tokens": tokens, "present": present})
    expected = theirs.predict_contacts(tokens, present.long()).detach()
    assert error(found[0], expected[0]) <= 1e-5
    assert error(found[1, :11, :11], expected[1, :11, :11]) <= 1e-5
    assert not found[1, 11:].any()


def test_a_model_without_the_head_is_refused(tmp_path):
    tiny.make("bert", "masked").save_pretrained(tmp_path)
    with pytest.raises(clearhead.ClearheadError, match="no contact head"):
        clearhead.contacts(clearhead.load(tmp_path), [3, 4])


def test_look_draws_the_map(tmp_path, pair, capsys):
    """As a person asks for it: a protein's letters on the command line."""
    marks, letters = ["<cls>", "<pad>", "<eos>", "<unk>"], "LAGVSERTIDPKQNFYMHWCXBUZO.-"
    clearhead.save(pair[1], tmp_path / "proteins")
    (tmp_path / "proteins" / "vocab.txt").write_text("\n".join([*marks, *letters, "<null_1>", "<mask>"]))
    call = ["look", str(tmp_path / "proteins"), "MKTAYIAKQRQISFVK", "--contacts"]
    assert main(call) == 0
    drawn = capsys.readouterr().out.splitlines()
    assert sum("-" in line and "." in line for line in drawn) == 8
    assert main([*call, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert "".join(said["residues"]) == "MKTAYIAKQRQISFVK"
    assert torch.tensor(said["contacts"]).shape == (16, 16)
    assert main([*call, "--save", str(tmp_path / "contacts.svg")]) == 0
    assert "M1, K2: " in (tmp_path / "contacts.svg").read_text()
    assert main([*call, "--layer", "1"]) == 2
