"""One block reads text, patches of pictures, frames of sound and residues of proteins."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients import texts
from clearhead.claims.ingredients.fitting import fit
from clearhead.claims.ingredients.small_models import attention, block, new_model
from clearhead.config import (
    EmbedConfig,
    FramesConfig,
    HeadsConfig,
    InitConfig,
    LabelHeadConfig,
    LearnedPositions,
    PatchesConfig,
    StackConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.inputs.audio import AudioProcessor
from clearhead.model.init import initialise
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

D_MODEL, N_LAYERS = 64, 2
BLOCK = block(attention(4, 16, causal=False), 192)
"""The one block: everything that is trained here has it, and differs in what stands before and behind it."""
SHIPPED = ("clear-gpt", "clear-bert", "clear-vit", "clear-speech")
HIDDEN = 0.15
TEXT_TAKES = 3
"""Text is learnt for so many times the steps of the others, which are easier."""
SCALED = InitConfig(std=None, deep=False, tables=1.0)
MASK, LENGTH = texts.SYMBOLS, 48
TONES = (300, 900, 2700)
HEARD = AudioProcessor(n_mels=16, hop=400, seconds=1)
N_HEARD = 20
PROTEINS = {
    "heavy chain": "EVQLVQSGPEVKKPGTSVKVSCKASGFTFMSSAVQWVRQARGQRLEWIGWIVIGSGNTNYAQKFQERVTITRDMSTSTAYMELSSLRSEDT"
    "AVYYCAAPYCSSISCNDGFDIWGQGTMVTVS",
    "light chain": "DVVMTQTPFSLPVSLGDQASISCRSSQSLVHSNGNTYLHWYLQKPGQSPKLLIYKVSNRFSGVPDRFSGSGSGTDFTLKISRVEAEDLGVY"
    "FCSQSTHVPYTFGGGTKLEIK",
}
"""Of two antibodies."""
APART = 8
"""Every eighth residue is hidden at once, so that in eight passes each was."""


class Told(NamedTuple):
    """How often a model was right, and the most frequent answer would be."""

    right: float
    chance: float


Examples = tuple[Tensor, Tensor]
"""What is read and what is to be told."""


def measure(run: Run) -> Measured:
    n_steps = 60 if run.quick else 300
    tick = run.progress((TEXT_TAKES + 2) * n_steps, "steps")
    found, models = {}, {}
    for name, train in (("text", read_text), ("patches", read_pictures), ("frames", read_sounds)):
        found[name], models[name] = train(run, n_steps, tick)
    found["residues"], models["residues"] = read_residues()
    shipped = [load(name) for name in SHIPPED]
    blocks = [layer for model in (*models.values(), *shipped) for stack in stacks(model) for layer in stack.layers]
    trained = [layer.config for name in ("text", "patches", "frames") for layer in models[name].layers]
    return Measured(
        values={
            "classes of block in eight models": float(len({type(layer) for layer in blocks})),
            "types of config": float(len({type(layer.config) for layer in blocks})),
            "different configs among three models": float(len(set(trained))),
        }
        | {f"{name}, above chance": told.right - told.chance for name, told in found.items()}
        | {f"{name}, right": told.right for name, told in found.items()},
        series={"right": {n: t.right for n, t in found.items()}, "chance": {n: t.chance for n, t in found.items()}},
    )


def stacks(model: Transformer) -> list[Transformer]:
    """The model itself, and the encoder beside its decoder where it has one."""
    return [model] if model.encoder is None else [model, model.encoder]  # type: ignore[list-item]


def encoder(embed: EmbedConfig, heads: HeadsConfig) -> TransformerConfig:
    """The block behind an embedding and before heads."""
    return TransformerConfig(
        d_model=D_MODEL,
        encoder=StackConfig(embed=embed, blocks=(BLOCK,) * N_LAYERS, norm=BLOCK.mixer.pre),
        heads=heads,
    )


def fresh(config: TransformerConfig, seed: int) -> Transformer:
    """A model whose first weights keep a vector's length, with which few steps go far."""
    model = new_model(config, seed)
    initialise(model, SCALED)
    return model


def labels(n: int) -> HeadsConfig:
    """One label for all of an input."""
    return HeadsConfig(labels=(("label", LabelHeadConfig(n_labels=n, at="mean")),))


# ---- text


def read_text(run: Run, n_steps: int, tick: Callable[[], None]) -> tuple[Told, Transformer]:
    """Hidden characters of Python, from both sides."""
    learnt, held_out = texts.python_source()
    generator = torch.Generator().manual_seed(run.seed)
    model = fresh(
        encoder(EmbedConfig(front=TokensConfig(vocab_size=MASK + 1)), HeadsConfig(tokens=TokenHeadConfig(tie=False))),
        run.seed,
    )

    def hidden(text: Tensor, n_rows: int) -> tuple[Tensor, Tensor, Tensor]:
        rows_BT = texts.rows(text, n_rows, LENGTH, generator)
        hidden_BT = torch.rand(rows_BT.shape, generator=generator) < HIDDEN
        return rows_BT.masked_fill(hidden_BT, MASK), hidden_BT, rows_BT[hidden_BT]

    def loss(step: int) -> Tensor:
        read_BT, hidden_BT, told_N = hidden(learnt, 32)
        return F.cross_entropy(model(read_BT)[hidden_BT], told_N)

    fit(model, loss, TEXT_TAKES * n_steps, lr=3e-3, warmup=10, tick=tick)
    read_BT, hidden_BT, told_N = hidden(held_out, 512)
    with torch.no_grad():
        return scored(model(read_BT)[hidden_BT], told_N), model


# ---- pictures and sounds, which are labelled


def read_pictures(run: Run, n_steps: int, tick: Callable[[], None]) -> tuple[Told, Transformer]:
    """Digits written by hand, in patches of 2 x 2 pixels; the last fifth is by other people than the rest."""
    found = importlib.import_module("sklearn.datasets").load_digits()
    pixels_NCHW = torch.from_numpy(found.images).float()[:, None] / 8 - 1
    digits_N = torch.from_numpy(found.target).long()
    n = len(digits_N) * 4 // 5
    front = PatchesConfig(patch=2, image=(8, 8), channels=1, n_prefix=0)
    config = encoder(EmbedConfig(front=front, positions=LearnedPositions(n=16)), labels(10))
    learnt, held_out = (pixels_NCHW[:n], digits_N[:n]), (pixels_NCHW[n:], digits_N[n:])
    return labelled(run, config, "pixels", learnt, held_out, n_steps, tick)


def read_sounds(run: Run, n_steps: int, tick: Callable[[], None]) -> tuple[Told, Transformer]:
    """Two tones one after the other, low, middle or high, in noise: which of nine pairs it is."""
    sounds = heard(480, torch.Generator().manual_seed(run.seed))
    front = FramesConfig(n_mels=HEARD.n_mels)
    config = encoder(EmbedConfig(front=front, positions=LearnedPositions(n=N_HEARD)), labels(len(TONES) ** 2))
    learnt, held_out = tuple(x[:360] for x in sounds), tuple(x[360:] for x in sounds)
    return labelled(run, config, "frames", learnt, held_out, n_steps, tick)  # type: ignore[arg-type]


def heard(n: int, generator: torch.Generator) -> Examples:
    """Spectrograms, and the number of each one's pair. Pitch, overtones and moment differ from sound to sound."""
    time_N = torch.arange(HEARD.rate * HEARD.seconds) / HEARD.rate
    pairs = torch.randint(len(TONES), (n, 2), generator=generator)
    vary = torch.rand(n, 3, generator=generator)
    pitch = torch.tensor(TONES)[pairs] * (0.9 + 0.2 * vary[:, :1])
    second = time_N > (0.4 + 0.2 * vary[:, 1:2])
    hertz = torch.where(second, pitch[:, 1:], pitch[:, :1])
    phase = 2 * torch.pi * hertz * time_N
    sound = 0.3 * phase.sin() + 0.2 * vary[:, 2:] * (2 * phase).sin()
    noise = 0.1 * torch.randn(sound.shape, generator=generator)
    return HEARD(list((sound + noise).numpy())), pairs[:, 0] * len(TONES) + pairs[:, 1]


def labelled(
    run: Run,
    config: TransformerConfig,
    reads: str,
    learnt: Examples,
    held_out: Examples,
    n_steps: int,
    tick: Callable[[], None],
) -> tuple[Told, Transformer]:
    """Train a model that labels what it reads, and ask it for what was held out."""
    model, generator = fresh(config, run.seed), torch.Generator().manual_seed(run.seed)

    def loss(step: int) -> Tensor:
        picked = torch.randint(len(learnt[1]), (64,), generator=generator)
        return F.cross_entropy(model(**{reads: learnt[0][picked]}), learnt[1][picked])

    fit(model, loss, n_steps, lr=3e-3, warmup=10, tick=tick)
    with torch.no_grad():
        return scored(model(**{reads: held_out[0]}), held_out[1]), model


def scored(scores_NV: Tensor, told_N: Tensor) -> Told:
    """How often the likeliest answer is right, and the most frequent one is."""
    right = (scores_NV.argmax(dim=-1) == told_N).double().mean()
    return Told(float(right), float(torch.bincount(told_N).max() / len(told_N)))


# ---- proteins


def read_residues() -> tuple[Told, Transformer]:
    """AntiBERTy, as it was published, on residues of two antibodies that are hidden in turn."""
    model = load("antiberty")
    mask = model.tokenizer.token_to_id("[MASK]")
    scores, told = [], []
    for sequence in PROTEINS.values():
        ids_T = torch.tensor(model.tokenizer.encode(sequence))
        for first in range(APART):
            places = torch.arange(1 + first, len(ids_T) - 1, APART)
            with torch.no_grad():
                scores.append(model(ids_T.index_fill(0, places, mask)[None]).tokens[0, places])
            told.append(ids_T[places])
    return scored(torch.cat(scores), torch.cat(told)), model


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes,) = figures.panels(width=7.2, height=4.2)
    names = list(results[0].series["right"])
    read = {
        "text": "hidden characters\nof Python",
        "patches": "digits in\n2 x 2 patches",
        "frames": "pairs of tones\nin frames",
    }
    figures.bars(
        axes,
        [read.get(name, "hidden residues\n(AntiBERTy)") for name in names],
        [[result.series["right"][name] for name in names] for result in results],
        say="{:.2f}",
    )
    for i, name in enumerate(names):
        chance = sum(result.series["chance"][name] for result in results) / len(results)
        (dashes,) = axes.plot(
            [i - 0.42, i + 0.42], [chance] * 2, color=figures.INK, linestyle=(0, (6, 3)), linewidth=1.4
        )
    axes.set(ylabel="share that is right (held out or hidden)", ylim=(0, 1.15))
    axes.legend([dashes], ["the most frequent answer"], loc="upper left")
    return figure


_ONE = "There is one class of block in the library, and one type of config."
_BETTER = "Better than always giving the most frequent answer, by more than luck with hundreds of answers."
CLAIM = Claim(
    says="One building block, attention and an MLP with a norm and an addition each, stands behind models of text, of "
    "pictures, of sound and of proteins: what is put before it turns characters, patches, frames or residues into "
    "vectors, and the block does not know which.",
    source=Source(
        statements=(1, 47),
        paper="Vaswani 2017; Dosovitskiy 2020, ViT, section 3.1; Radford 2022, Whisper, section 2.2; Rives 2021, ESM",
    ),
    how="One and the same BlockConfig is trained three times, two layers of it, for 300 steps (60 in a quick run; text "
    "for three times as many): on hidden characters of Python, on handwritten digits in patches of 2 x 2 pixels, and "
    "on pairs of tones in frames of a spectrogram. Residues are told by AntiBERTy as it was published, 26 million "
    "parameters of the same class, with another config: no proteins to learn from come with this package. Answers are "
    "to what was held out (residues to what was hidden, in two antibodies that AntiBERTy may have learnt from), and "
    "stand beside the most frequent answer. The classes are those of these four and of clear-gpt, clear-bert, "
    "clear-vit and clear-speech, whose own accuracy is on their cards: their pictures and sounds are not in the "
    "package.",
    marks=(
        Mark(of="classes of block in eight models", why=_ONE, low=1, high=1),
        Mark(of="types of config", why=_ONE, low=1, high=1),
        Mark(of="different configs among three models", why="The very same numbers and switches.", low=1, high=1),
        Mark(of="text, above chance", why=_BETTER, low=0.05),
        Mark(of="patches, above chance", why=_BETTER, low=0.3),
        Mark(of="frames, above chance", why=_BETTER, low=0.3),
        Mark(of="residues, above chance", why=_BETTER, low=0.3),
    ),
    measure=measure,
    draw=draw,
    seeds=3,
    cost=Cost(minutes=2, needs=("antiberty", "sklearn")),
)
