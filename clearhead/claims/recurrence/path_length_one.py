"""How many steps lie between two tokens: one in attention, as many as their distance in a recurrent network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.recurrent_nets import N_WORDS, network
from clearhead.claims.ingredients.small_models import attention, block, decoder, new_model
from clearhead.config import InitConfig
from clearhead.lens.edit import edit
from clearhead.lens.record import look
from clearhead.model.init import initialise
from clearhead.model.transformer import Transformer
from clearhead.recurrent import gradient_norms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIXER = attention(4, 16)
DISTANCES = (1, 10, 50, 100)
NEAR, FAR = 1, 50
TEXTS = 32
SEVERED = 1e-6
"""Of the influence that there is when nothing is held: less than this is none."""
MADE = {"attention": ("k", "v", "z"), "simple RNN": ("hidden",)}
"""What a mixer makes of a token, which is held to see what goes through it."""


def measure(run: Run) -> Measured:
    longest = FAR if run.quick else DISTANCES[-1]
    distances = [n for n in DISTANCES if n <= longest]
    models = {name: make(run.seed) for name, make in MODELS.items()}
    quiet = {"attention": models["attention"], "simple RNN": nearly_linear(network("simple", run.seed))}
    tick = run.progress(len(quiet) * len(distances) + len(models), "distances")
    paths: dict[str, list[float]] = {name: [] for name in quiet}
    for name, model in quiet.items():
        for distance in distances:
            paths[name].append(path_length(model, MADE[name], distance, run.seed))
            tick()
    gradients = {}
    for name, model in models.items():
        gradients[name] = gradient_by_lag(model, longest, run.seed)
        tick()
    over = {name: lags[FAR] / lags[NEAR] for name, lags in gradients.items()}
    return Measured(
        values={
            "attention: longest path": max(paths["attention"]),
            "RNN: shortest path, over the distance": min(
                path / distance for path, distance in zip(paths["simple RNN"], distances, strict=True)
            ),
            "attention: gradient 50 tokens back over 1 back": over["attention"],
            "RNN: gradient 50 tokens back over 1 back": over["simple RNN"],
            "LSTM: gradient 50 tokens back over 1 back": over["LSTM"],
        },
        series={"distances": distances, "paths": paths, "gradients": gradients},
    )


def attention_layer(seed: int) -> Transformer:
    """One layer of attention and nothing else, in float64, with token vectors as in the recurrent networks."""
    model = new_model(decoder((block(MIXER, None),), d_model=64, vocab_size=N_WORDS), seed)
    initialise(model, InitConfig(std=None, tables=1.0))
    return model.double()


MODELS: dict[str, Callable[[int], Transformer]] = {
    "attention": attention_layer,
    "simple RNN": partial(network, "simple"),
    "LSTM": partial(network, "lstm"),
}


@torch.no_grad()
def nearly_linear(model: Transformer) -> Transformer:
    """With token vectors so short that tanh is a line: what is changed is felt at every distance."""
    assert model.embed.tokens is not None
    model.embed.tokens.weight.mul_(0.01)
    return model


@torch.no_grad()
def path_length(model: Transformer, made: Sequence[str], distance: int, seed: int) -> float:
    """How many steps the first token takes to the last, `distance` tokens on: one more than there are tokens between
    that hold it up. A token does where the last one no longer feels the first, once all that the layer makes of that
    token is held as it was before the first one changed.
    """
    draw = torch.Generator().manual_seed(seed)
    before_T = torch.randint(N_WORDS, (distance + 1,), generator=draw)
    after_T = before_T.clone()
    after_T[0] = (before_T[0] + 1) % N_WORDS
    sites = [f"layers.0.mixer.{name}" for name in made]
    seen = look(model, before_T[None], *sites)
    felt = difference(model(after_T[None]), seen.output)[0]
    if felt == 0:
        return math.inf
    held = torch.arange(1, distance)
    if len(held) == 0:
        return 1

    edits = {site: partial(hold, was=seen[site], held=held) for site in sites}
    still_felt = difference(edit(model, after_T.expand(len(held), -1), edits), seen.output)
    return 1 + int((still_felt < SEVERED * felt).sum())


def hold(there: Tensor, was: Tensor, held: Tensor) -> Tensor:
    """In each row another token, as it was: tokens are the last axis but one."""
    there.movedim(-2, 1)[held - 1, held] = was.movedim(-2, 1)[0, held]
    return there


def difference(logits_BTV: Tensor, than_BTV: Tensor) -> Tensor:
    """Of the last token's scores, the greatest."""
    return (logits_BTV[:, -1] - than_BTV[:, -1]).abs().amax(-1)


def gradient_by_lag(model: Transformer, longest: int, seed: int) -> list[float]:
    """The gradient of the loss behind a token by what stands in the stream so many tokens before it."""
    draw = torch.Generator().manual_seed(seed)
    tokens_BT = torch.randint(N_WORDS, (TEXTS, longest + 2), generator=draw)
    norms_T = gradient_norms(model, tokens_BT, site="layers.0.resid_pre")
    found: list[float] = norms_T.flip(0).tolist()
    return found


def draw(results: Sequence[Measured]) -> Figure:
    figure, (left, right) = figures.panels(2, width=5.2)
    series = [result.series for result in results]
    distances = series[0]["distances"]
    styles = dict(zip(MODELS, figures.styles(), strict=False))
    for name in series[0]["paths"]:
        figures.curve(left, distances, [one["paths"][name] for one in series], name, styles[name])
    left.set_xlabel("distance, tokens")
    left.set_ylabel("steps from one to the other")
    for name, style in styles.items():
        lags = [[x / one["gradients"][name][NEAR] for x in one["gradients"][name][NEAR:]] for one in series]
        x = range(NEAR, len(lags[0]) + NEAR)
        figures.curve(right, list(x), lags, name, {**style, "markevery": 10})
    for level in (0.3, 0.1):
        figures.mark(right, level, "")
    right.annotate("marks: attention above 0.3, RNN below 0.1", (distances[-1], 0.06), ha="right", va="top", fontsize=9)
    right.set_yscale("log")
    right.set_xlabel("tokens back")
    right.set_ylabel("gradient, over that 1 back")
    for axes in (left, right):
        axes.legend()
    return figure


CLAIM = Claim(
    says="Between any two tokens attention's path has length one; in a recurrent network it grows with their distance.",
    source=Source(statements=(9,), paper="Vaswani 2017, section 4 and table 1 (maximum path length); Bengio 1994"),
    how="One layer of attention and one simple recurrent layer (64 units, orthogonal at the start, float64, "
    "untrained). The first token is changed, and what the layer made of one token in between is held as it was: where "
    "the last token then feels nothing, every path leads through that token. The path is one step longer than there "
    "are such tokens. The two are 1, 10, 50 and 100 tokens apart (up to 50 in a quick run). (For this the recurrent "
    "network's token vectors are a hundredth as long, so that a change does not die on the way.) Beside it stands the "
    "gradient that reaches back so many tokens, the mean of 32 random texts; the query's own place is left out, as it "
    "has paths of its own. An LSTM with its forget bias at 1 is told and not judged.",
    marks=(
        Mark(of="attention: longest path", low=1, high=1, why="No token in between is needed, at any distance."),
        Mark(
            of="RNN: shortest path, over the distance",
            low=1,
            high=1,
            why="Everything goes through every hidden vector in between.",
        ),
        Mark(
            of="attention: gradient 50 tokens back over 1 back",
            low=0.3,
            high=3,
            why="A path of one step is as long from anywhere, so they are about equal; tokens differ by chance. Three "
            "seeds gave 0.93 to 1.23.",
        ),
        Mark(
            of="RNN: gradient 50 tokens back over 1 back",
            high=0.1,
            why="50 factors in place of one; even an orthogonal matrix loses at every tanh. Three seeds gave 2e-7 to "
            "4e-7.",
        ),
    ),
    measure=measure,
    draw=draw,
    seeds=3,
    cost=Cost(minutes=0.1),
)
