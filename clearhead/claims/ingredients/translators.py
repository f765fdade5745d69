"""RNNenc and RNNsearch on a made-up language: trained once for all claims that ask, and scored by sentence length."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.claims.claim import Run
from clearhead.claims.ingredients.fitting import fit
from clearhead.claims.ingredients.languages import IDS, NO_TARGET, Language, Pairs
from clearhead.config import InitConfig, TransformerConfig
from clearhead.families.first_weights import FIRST_WEIGHTS
from clearhead.lens import look
from clearhead.model.init import initialise
from clearhead.model.transformer import Transformer
from clearhead.recurrent import rnn_enc, rnn_search

Kind = Literal["search", "enc"]
MAKERS: dict[Kind, Callable[..., TransformerConfig]] = {"search": rnn_search, "enc": rnn_enc}
ALIGNMENT = "layers.0.mixer.alignment"


@dataclass(frozen=True, kw_only=True)
class Task:
    """How large the models are, what they are trained on, and what they are asked."""

    language: Language
    d_model: int
    steps: int
    rows: int
    rate: float
    short: tuple[int, int]
    """From how many to how many words most sentences have."""
    long: tuple[int, int]
    """The same of one in five."""


FULL = Task(language=Language(), d_model=64, steps=1500, rows=64, rate=4e-3, short=(3, 12), long=(13, 24))
QUICK = Task(
    language=Language(n_nouns=6, n_adjectives=3, n_verbs=3),
    d_model=32,
    steps=300,
    rows=32,
    rate=1e-2,
    short=(3, 6),
    long=(7, 12),
)


def lengths_of(task: Task) -> range:
    """All lengths that some training sentence has."""
    return range(task.short[0], task.long[1] + 1)


def ends(task: Task) -> tuple[range, range]:
    """Three of the shortest lengths, and the three longest."""
    first, last = task.short[0] + 1, task.long[1]
    return range(first, first + 3), range(last - 2, last + 1)


def mean_of(found: Mapping[int, float], lengths: Iterable[int]) -> float:
    """The mean over some lengths."""
    return mean(found[n] for n in lengths)


def task_of(run: Run) -> Task:
    return QUICK if run.quick else FULL


def config_of(kind: Kind, task: Task) -> TransformerConfig:
    """The two have as many parameters, as nearly as whole numbers allow."""
    words = task.language
    return MAKERS[kind](
        vocab_size=words.target_words, source_vocab_size=words.source_words, d_model=task.d_model, ids=IDS
    )


def translator(run: Run, kind: Kind, *, some_long: bool = True) -> Transformer:
    """A trained model of the run's seed: on short sentences, and on one long one in five where `some_long`.

    Word vectors begin at 1, as the family has them, with which RNNenc learns the most. What is trained on short
    sentences alone is there to be looked at: with vectors that begin at .02 its weights lie the clearest.
    """
    torch.manual_seed(run.seed)
    model = Transformer(config_of(kind, task_of(run)))
    initialise(model, FIRST_WEIGHTS["clearhead_recurrent"] if some_long else InitConfig())
    name = f"rnn-{kind}-{'mixed' if some_long else 'short'}"
    model.load_state_dict(run.kept(name, partial(_trained, run, model, kind, some_long)))
    return model.eval()


def _trained(run: Run, model: Transformer, kind: Kind, some_long: bool) -> dict[str, Tensor]:
    task, draw = task_of(run), random.Random(run.seed)
    tick = run.progress(task.steps, f"training RNN{kind}")

    def loss(step: int) -> Tensor:
        lengths = task.long if some_long and draw.random() < 0.2 else task.short
        return loss_of(model, task.language.batch(draw.randint(*lengths), task.rows, draw))

    fit(model, loss, task.steps, lr=task.rate, warmup=task.steps // 20, decay=True, tick=tick)
    return model.state_dict()


def loss_of(model: Transformer, pairs: Pairs) -> Tensor:
    """The mean loss of a word."""
    logits_BTV = model(pairs.read_BT, source=pairs.source_BS)
    return F.cross_entropy(logits_BTV.flatten(0, 1), pairs.write_BT.flatten(), ignore_index=NO_TARGET)


@torch.inference_mode()
def accuracy(model: Transformer, task: Task, lengths: Sequence[int], rows: int = 64) -> dict[int, float]:
    """By sentence length: of the words that can be known from the source alone, the share that is right, each guessed
    after the right words before it.
    """
    found = {}
    for n_words in lengths:
        pairs = fresh(task, n_words, rows)
        guessed_BT = model(pairs.read_BT, source=pairs.source_BS).argmax(dim=-1)
        found[n_words] = float((guessed_BT == pairs.write_BT)[pairs.new_BT].double().mean())
    return found


def aligned(model: Transformer, task: Task, lengths: Sequence[int], rows: int = 64) -> dict[int, float]:
    """By sentence length: the share of words whose largest weight is on the word that they come from."""
    found = {}
    for n_words in lengths:
        pairs = fresh(task, n_words, rows)
        right_BT = weights(model, pairs).argmax(dim=-1) == pairs.from_BT
        found[n_words] = float(right_BT[pairs.from_BT != NO_TARGET].double().mean())
    return found


def weights(model: Transformer, pairs: Pairs) -> Tensor:
    """What every word of a translation weighs the words of its source with, (B, T, S)."""
    return look(model, {"tokens": pairs.read_BT, "source": pairs.source_BS}, ALIGNMENT)[ALIGNMENT]


def fresh(task: Task, n_words: int, rows: int) -> Pairs:
    """Sentences that no training drew: the same for every model."""
    return task.language.batch(n_words, rows, random.Random(f"asked {n_words}"))
