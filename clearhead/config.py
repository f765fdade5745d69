"""What a model is made of: one frozen record a part, in a tree that mirrors the tree of modules.

A record knows nothing of any published model: the files in `families/` translate. Unknown keys are refused (a record
is called with keywords only), values are checked where the record is made, and `dataclasses.replace` makes variants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar, dataclass_transform

from clearhead.errors import ClearheadError

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[T]) -> type[T]:
    """A frozen dataclass that takes keywords only."""
    return dataclass(frozen=True, kw_only=True)(cls)


def _check(holds: bool, text: str) -> None:
    if not holds:
        raise ClearheadError(text)


def _check_positive(part: object, *names: str) -> None:
    for name in names:
        value = getattr(part, name)
        _check(value > 0, f"{type(part).__name__}.{name} is {value}; it must be more than 0")


# ---- parts used everywhere


@record
class NormConfig:
    """LayerNorm (Ba 2016) or RMSNorm (Zhang 2019). `offset` is added to the weight (1 in Gemma)."""

    kind: Literal["layer", "rms"] = "rms"
    eps: float = 1e-6
    offset: float = 0.0
    bias: bool = False
    round_first: bool = True
    """Round to the stream's dtype before multiplying by the weight (Llama), or after (Gemma): in float32 the same."""


@record
class BiasConfig:
    """Which of attention's four projections add a bias."""

    q: bool = False
    k: bool = False
    v: bool = False
    o: bool = False


# ---- positions


@record
class LinearScaling:
    """Positions divided by `factor` (Chen 2023, position interpolation)."""

    factor: float


@record
class DynamicScaling:
    """The base grows with the length beyond `trained_length` ("dynamic NTK"): frequencies depend on the length."""

    factor: float
    trained_length: int


@record
class Llama3Scaling:
    """Slow waves are stretched by `factor`, fast ones kept, those between blended (Llama 3.1)."""

    factor: float
    low: float
    high: float
    trained_length: int


@record
class YarnScaling:
    """Interpolation by wavelength, and a factor on the scores (Peng 2023, YaRN)."""

    factor: float
    trained_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None


@record
class LongRopeScaling:
    """One divisor a frequency, `short` up to the trained length and `long` beyond it (Ding 2024, LongRoPE)."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    trained_length: int
    factor: float
    attention_factor: float | None = None


Scaling = LinearScaling | DynamicScaling | Llama3Scaling | YarnScaling | LongRopeScaling


@record
class RotaryConfig:
    """Pairs of query and key dimensions are rotated by position x frequency (Su 2021, RoFormer, eq. 15)."""

    base: float = 10000.0
    fraction: float = 1.0
    """The share of each head that is rotated; the rest is left as it is."""
    interleaved: bool = False
    """Pairs are (0, 1), (2, 3), ... rather than (0, K/2), (1, K/2 + 1), ..."""
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        _check_positive(self, "base")
        _check(0 < self.fraction <= 1, f"RotaryConfig.fraction is {self.fraction}; it must be in (0, 1]")

    @property
    def depends_on_length(self) -> bool:
        """Whether the frequencies change as a text grows, which makes what was computed before stale."""
        match self.scaling:
            case DynamicScaling():
                return True
            case LongRopeScaling(short=short, long=long):
                return short != long
        return False


@record
class AlibiConfig:
    """Scores fall linearly with distance, by a slope a head (Press 2021, ALiBi)."""


@record
class LearnedPositions:
    """A table of `n` learned vectors, one a position."""

    n: int


@record
class SinusoidalPositions:
    """Sines and cosines of `n` positions (Vaswani 2017, section 3.5); as in the paper, or all sines first."""

    n: int
    layout: Literal["interleaved", "halves"] = "interleaved"


# ---- sub-layers


@record
class ScoresConfig:
    """What happens to q.k before the softmax. `scale` None is d_head ** -0.5."""

    scale: float | None = None
    softcap: float | None = None
    sinks: bool = False
    dropout: float = 0.0


@record
class MaskConfig:
    """Which tokens a layer may see. A causal window counts the token itself; a full one reaches to either side."""

    kind: Literal["causal", "full"] = "causal"
    window: int | None = None

    def __post_init__(self) -> None:
        if self.window is not None:
            _check_positive(self, "window")


@record
class QKNormConfig:
    """A norm on queries and keys before rotation, over each head or over all heads together."""

    norm: NormConfig
    over: Literal["head", "all_heads"] = "head"


@record
class AttentionConfig:
    """Multi-head attention (Vaswani 2017, section 3.2); fewer kv heads than heads is grouped queries (Ainslie 2023)."""

    n_heads: int
    n_kv_heads: int
    d_head: int
    bias: BiasConfig = BiasConfig()
    scores: ScoresConfig = ScoresConfig()
    mask: MaskConfig = MaskConfig()
    positions: RotaryConfig | AlibiConfig | None = None
    qk_norm: QKNormConfig | None = None

    def __post_init__(self) -> None:
        _check_positive(self, "n_heads", "n_kv_heads", "d_head")
        _check(
            self.n_heads % self.n_kv_heads == 0,
            f"{self.n_heads} query heads can't share {self.n_kv_heads} key-value heads; n_heads must be a multiple",
        )
        match self.positions:
            case RotaryConfig(fraction=fraction, scaling=LongRopeScaling(short=short, long=long)):
                n_pairs = int(self.d_head * fraction) // 2
                _check(
                    len(short) == len(long) == n_pairs,
                    f"LongRoPE needs one divisor for each of {n_pairs} frequencies, not {len(short)} and {len(long)}",
                )


@record
class FeedForwardConfig:
    """Two matrices and an activation, or three with a gate (Shazeer 2020, GLU variants)."""

    d_ff: int
    activation: str = "silu"
    gated: bool = True
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _check_positive(self, "d_ff")


@record
class SublayerConfig:
    """x = after(x + scale * dropout(out(op(pre(x))))). Which of the three norms exist is the norm placement:
    pre (GPT-2, Llama), after (post-norm, 2017), pre and out (sandwich, Gemma), out alone (OLMo 2).
    """

    op: AttentionConfig | FeedForwardConfig
    pre: NormConfig | None = None
    out: NormConfig | None = None
    after: NormConfig | None = None
    scale: float = 1.0
    dropout: float = 0.0


@record
class BlockConfig:
    """A mixer that moves information between tokens, and a feed-forward that works within one.

    `parallel` feeds both the same x and adds both corrections at once (GPT-NeoX).
    """

    mixer: SublayerConfig
    ffn: SublayerConfig | None = None
    parallel: bool = False

    def __post_init__(self) -> None:
        _check(
            not self.parallel or (self.ffn is not None and self.mixer.after is None and self.ffn.after is None),
            "a parallel block needs a feed-forward and no norm after the addition",
        )


# ---- whole models


@record
class TokensConfig:
    """A table of token vectors."""

    vocab_size: int

    def __post_init__(self) -> None:
        _check_positive(self, "vocab_size")


@record
class EmbedConfig:
    """What turns the input into the first state of the stream: dropout(norm(scale * front(x) + positions))."""

    front: TokensConfig
    positions: LearnedPositions | SinusoidalPositions | None = None
    scale: float = 1.0
    norm: NormConfig | None = None
    dropout: float = 0.0


@record
class TokenHeadConfig:
    """Scores over the vocabulary: softcap(scale * (stream @ W^T + b)); `tie` shares W with the embedding."""

    tie: bool = True
    bias: bool = False
    scale: float = 1.0
    softcap: float | None = None


@record
class HeadsConfig:
    """What reads the finished stream."""

    tokens: TokenHeadConfig | None = None


@record
class StackConfig:
    """An embedding, blocks, and a norm after the last."""

    embed: EmbedConfig
    blocks: tuple[BlockConfig, ...]
    norm: NormConfig | None = None

    def __post_init__(self) -> None:
        _check(len(self.blocks) > 0, "a stack needs at least one block")


@record
class TokenIds:
    """Special tokens as the model's config names them."""

    bos: int | None = None
    eos: tuple[int, ...] = ()
    pad: int | None = None


@record
class TransformerConfig:
    """A whole model: an encoder or a decoder, and heads."""

    d_model: int
    encoder: StackConfig | None = None
    decoder: StackConfig | None = None
    heads: HeadsConfig = HeadsConfig()
    context: int | None = None
    """The longest text the model was made for, in tokens."""
    ids: TokenIds = TokenIds()

    def __post_init__(self) -> None:
        _check_positive(self, "d_model")
        _check(
            (self.encoder is None) != (self.decoder is None), "a model is an encoder or a decoder: give one of the two"
        )

    @property
    def stack(self) -> StackConfig:
        """The stack that gives the output."""
        stack = self.decoder or self.encoder
        assert stack is not None
        return stack
