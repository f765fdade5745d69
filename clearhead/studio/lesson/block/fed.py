"""Chapter 6: the same block fed with text and with a protein, and what is said of every kind of input (S47)."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from clearhead.claims.block.one_block import PROTEINS
from clearhead.config import StackConfig
from clearhead.errors import UsageError
from clearhead.lens import Seen, look
from clearhead.model.describe import describe
from clearhead.studio.context import Studio
from clearhead.studio.lesson.block.reading import TEXT, Text, passed
from clearhead.studio.operations import Answer, operation

TOP = 4
"""So many answers are named."""


def lengths_of(seen: Seen, layers: str, n: int) -> Tensor:
    """(layers + 1, T): how long each token's vector is before every block and after the last."""
    streams = [seen[f"{layers}.{i}.resid_pre"][0] for i in range(n)] + [seen[f"{layers}.{n - 1}.resid_post"][0]]
    lengths: Tensor = torch.stack(streams).norm(dim=-1)
    return lengths


def told_of(model: Any, stack: StackConfig, layers: str, tokens: list[str], made: str) -> dict[str, Any]:
    """What is said of every kind of input: its tokens, the blocks, and how it became the one for the other."""
    found = describe(model)
    first = f"{layers}.0."
    return {
        "tokens": tokens,
        "n_tokens": len(tokens),
        "d_model": model.config.d_model,
        "n_layers": len(stack.blocks),
        "block": found.layers[layers][0],
        "block_parameters": sum(part.n_parameters for part in found.parts if part.path.startswith(first)),
        "module": type(model.get_submodule(f"{layers}.0")).__name__,
        "module_path": f"{type(model.get_submodule(f'{layers}.0')).__module__}",
        "total": found.n_parameters,
        "made": made,
    }


def best_of(score_V: Tensor, names: list[str] | None = None, tokenizer: Any = None) -> dict[str, Any]:
    """The answers that have the largest shares of a softmax over all scores, and what the shares are made from."""
    best = score_V.softmax(dim=-1).topk(min(TOP, len(score_V)))
    ids = best.indices.tolist()
    called = tokenizer.pieces(ids) if names is None else [names[i] for i in ids]
    answers = [
        {"name": name, "share": float(share), "score": float(score_V[i])}
        for i, name, share in zip(ids, called, best.values, strict=True)
    ]
    return {"answers": answers, "log_sum": float(score_V.logsumexp(dim=-1)), "n_scores": len(score_V)}


# ---- text


@operation("block.text")
def text(studio: Studio, *, text: Text = TEXT) -> Answer:
    """clear-gpt reads a text and gives the next token."""
    found = passed(studio, "clear-gpt", text)
    model, slot = found.model, len(found.ids) - 1
    best = best_of(found.seen.output[0, slot], tokenizer=model.tokenizer)
    made = f"A table of {model.config.vocab_size:,} vectors, one of which is looked up for each token."
    return Answer(
        data={
            **told_of(model, model.config.stack, "layers", found.pieces, made),
            "input": "text",
            "model": "clear-gpt",
            **best,
            "cut": found.cut,
        },
        arrays={"lengths": lengths_of(found.seen, "layers", len(model.layers))},
        python=_TEXT.format(ids=found.ids, top=TOP),
        printed=tuple(answer["share"] for answer in best["answers"]),
    )


_TEXT = """\
import torch

import clearhead

model = clearhead.load("clear-gpt")
with torch.no_grad():
    logits_BTV = model(torch.tensor([{ids}]))
for share in logits_BTV[0, -1].softmax(dim=-1).topk({top}).values:
    print(float(share))
"""


# ---- a protein

RESIDUES = frozenset("ACDEFGHIKLMNPQRSTVWY")
DEFAULT_PROTEIN = PROTEINS["heavy chain"][:40]


@operation("block.protein")
def protein(
    studio: Studio,
    *,
    sequence: Annotated[str, Field(max_length=160)] = DEFAULT_PROTEIN,
    hidden: Annotated[int, Field(ge=0, le=159)] = 21,
) -> Answer:
    """AntiBERTy reads the residues of an antibody, one of them hidden, and says which it is.

    Raises:
        UsageError: a letter stands for no residue; or the model is not installed, and the message says how to.
    """
    letters = "".join(sequence.upper().split())
    wrong = sorted(set(letters) - RESIDUES)
    if wrong or not letters:
        what = f"{', '.join(wrong)} stand for no residue" if wrong else "there are no residues"
        raise UsageError(f"{what}; the letters of the twenty are {''.join(sorted(RESIDUES))}")
    hidden = min(hidden, len(letters) - 1)
    with studio.models.lock("antiberty"):
        model = studio.models.get("antiberty")
        ids_T = torch.tensor(model.tokenizer.encode(letters))
        there = int(ids_T[1 + hidden])
        ids_T[1 + hidden] = model.tokenizer.token_to_id("[MASK]")
        seen = look(model, ids_T.tolist(), "layers.*.resid_pre", "layers.*.resid_post")
    score_V = seen.output.tokens[0, 1 + hidden]
    best = best_of(score_V, tokenizer=model.tokenizer)
    share_there = float(score_V.softmax(dim=-1)[there])
    tokens = ["start", *letters, "end"]
    tokens[1 + hidden] = "?"
    made = "Each residue is a letter of twenty, looked up in a table; a learned vector of the place is added."
    return Answer(
        data={
            **told_of(model, model.config.stack, "layers", tokens, made),
            "input": "protein",
            "model": "antiberty",
            **best,
            "sequence": letters,
            "hidden": hidden,
            "there": letters[hidden],
            "share_there": share_there,
            "score_there": float(score_V[there]),
        },
        arrays={"lengths": lengths_of(seen, "layers", len(model.layers))},
        python=_PROTEIN.format(letters=letters, place=1 + hidden, top=TOP),
        printed=(*(answer["share"] for answer in best["answers"]), share_there),
    )


_PROTEIN = """\
import torch

import clearhead

model = clearhead.load("antiberty")
ids = torch.tensor(model.tokenizer.encode("{letters}"))
there = int(ids[{place}])
ids[{place}] = model.tokenizer.token_to_id("[MASK]")
with torch.no_grad():
    share = model(ids[None]).tokens[0, {place}].softmax(dim=-1)
for one in share.topk({top}).values:
    print(float(one))
print("what was hidden:", float(share[there]))
"""
