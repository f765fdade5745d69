"""The real Gemma 3 270M against the `transformers` package, which reads the same GGUF file (in about a minute)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.checkpoints import open_checkpoint
from clearhead.model.transformer import Transformer
from tests.oracles import REAL_TOLERANCE

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("gemma")]


@dataclass
class Pair:
    theirs: torch.nn.Module
    ours: Transformer


@pytest.fixture(scope="module")
def pair() -> Pair:
    from transformers import AutoModelForCausalLM

    with open_checkpoint("gemma3-270m") as checkpoint:
        path = Path(checkpoint.where)
    theirs = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    return Pair(theirs.eval(), clearhead.load("gemma3-270m"))


@pytest.fixture(scope="module")
def prompt(pair: Pair) -> torch.Tensor:
    ids = pair.ours.tokenizer.encode("The keys to the cabinet")
    assert ids == [2, 818, 13272, 531, 506, 18820]
    return torch.tensor([ids])


def test_logits_over_64_tokens(pair):
    text = (
        "The keys to the cabinet are on the table, and nobody has been in the room since the trophy was put away. " * 4
    )
    tokens = torch.tensor([pair.ours.tokenizer.encode(text)[:64]])
    assert tokens.shape == (1, 64)
    with torch.no_grad():
        theirs, ours = pair.theirs(tokens).logits, pair.ours(tokens)
    # Absolute, and the logits reach 26; measured: 2.3e-5.
    assert float((ours - theirs).abs().max()) <= REAL_TOLERANCE


def test_200_greedy_tokens(pair, prompt):
    theirs = pair.theirs.generate(prompt, do_sample=False, max_new_tokens=200, min_new_tokens=200)
    ours = clearhead.generate(pair.ours, prompt, max_new_tokens=200, stop_tokens=())[0]
    assert ours.tokens == theirs[0, prompt.shape[1] :].tolist()


def test_what_the_readme_promises(pair):
    result = clearhead.generate(pair.ours, "The keys to the cabinet", temperature=0, max_new_tokens=10)
    assert result.text == " are the same as the keys to the door."
    trophy = "The trophy did not fit in the suitcase because it was too"
    assert clearhead.generate(pair.ours, trophy, max_new_tokens=10).text == " big. I had to buy a new one."


def test_are_is_likelier_than_is(pair, prompt):
    with torch.no_grad():
        p = pair.ours(prompt)[0, -1].softmax(-1)
    are, is_ = (pair.ours.tokenizer.encode(word, bos=False)[0] for word in (" are", " is"))
    assert p[are] == p.max()
    assert p[are] > 5 * p[is_]


def test_every_pattern_equals_eager_attention(pair):
    """Layer 5, head 0 is what `clearhead look` shows; a look changes no bit of the output."""
    text = "The keys to the cabinet are on the table"
    tokens = torch.tensor([pair.ours.tokenizer.encode(text)])
    seen = clearhead.look(pair.ours, text, "layers.*.mixer.pattern")
    with torch.no_grad():
        theirs = pair.theirs(tokens, output_attentions=True).attentions
        assert torch.equal(seen.output, pair.ours(tokens))
    for layer, pattern in enumerate(theirs):
        ours = seen[f"layers.{layer}.mixer.pattern"]
        assert float((ours - pattern).abs().max()) <= REAL_TOLERANCE
        assert torch.allclose(ours.sum(-1), torch.ones(()))


def test_cached_in_chunks_equals_the_whole_pass_beyond_the_window(pair):
    """700 tokens: the windows of 512 have slid."""
    tokens = torch.randint(3, 200_000, (1, 700), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole, state = pair.ours(tokens, last=1), pair.ours.new_state()
        for start in range(0, 690, 230):
            pair.ours(tokens[:, start : start + 230], state=state, last=0)
        for at in range(690, 700):
            out = pair.ours(tokens[:, at : at + 1], state=state)
        assert float((out - whole).abs().max()) <= REAL_TOLERANCE * float(whole.abs().max())
