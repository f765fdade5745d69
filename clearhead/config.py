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
    on_values: bool = False
    """Values are rotated too (an option of RoFormer)."""
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        _check_positive(self, "base")
        _check(0 < self.fraction <= 1, f"RotaryConfig.fraction is {self.fraction}; it must be in (0, 1]")

    def check_fits(self, d_head: int) -> None:
        """Refuse a scaling by frequency that has another number of them than heads of `d_head` have."""
        match self.scaling:
            case LongRopeScaling(short=short, long=long):
                n_pairs = int(d_head * self.fraction) // 2
                _check(
                    len(short) == len(long) == n_pairs,
                    f"LongRoPE needs one divisor for each of {n_pairs} frequencies, not {len(short)} and {len(long)}",
                )

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
class RelativeBiasConfig:
    """A learned number a head is added to each score, by the bucket its distance falls in (Raffel 2020, T5).

    One table serves every layer of a stack whose attention names it.
    """

    n_buckets: int = 32
    max_distance: int = 128


@record
class LearnedPositions:
    """A table of `n` learned vectors, one a position."""

    n: int
    offset: int = 0
    """The row of the first position (2 in BART)."""
    pad_id: int | None = None
    """Where given, positions are counted over the tokens that are not `pad_id`, from row `pad_id` + 1 on, and padding
    gets row `pad_id` (RoBERTa)."""
    grid: tuple[int, int] | None = None
    """The last rows are a picture's patches, so many down and across; another size gets them resized (ViT)."""


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
    positions: RotaryConfig | AlibiConfig | RelativeBiasConfig | None = None
    qk_norm: QKNormConfig | None = None

    def __post_init__(self) -> None:
        _check_positive(self, "n_heads", "n_kv_heads", "d_head")
        _check(
            self.n_heads % self.n_kv_heads == 0,
            f"{self.n_heads} query heads can't share {self.n_kv_heads} key-value heads; n_heads must be a multiple",
        )
        if isinstance(self.positions, RotaryConfig):
            self.positions.check_fits(self.d_head)


@record
class LatentWidths:
    """The widths of latent attention: of the compressed queries (None: not compressed) and keys-and-values, and in each
    head of the part without positions, the rotated part, and the values.
    """

    q: int | None
    kv: int
    nope: int
    rope: int
    value: int


@record
class LatentAttentionConfig:
    """Attention whose keys and values are made from one small vector a token, which is all that is kept
    (DeepSeek-AI 2024, MLA).
    """

    n_heads: int
    widths: LatentWidths
    norm: NormConfig
    scores: ScoresConfig = ScoresConfig()
    mask: MaskConfig = MaskConfig()
    positions: RotaryConfig = RotaryConfig()
    bias: bool = False

    def __post_init__(self) -> None:
        _check_positive(self, "n_heads")
        _check(not self.positions.on_values, "latent attention makes values from what has no position: on_values=False")
        self.positions.check_fits(self.widths.rope)


@record
class ConvConfig:
    """A causal convolution along the text, one filter a channel."""

    width: int = 4
    bias: bool = True
    activation: str = "silu"


@record
class MambaConfig:
    """A selective state space (Gu and Dao 2023). `inner_norm` is Jamba's, on the step size and on B and C."""

    d_inner: int
    d_state: int
    dt_rank: int
    conv: ConvConfig = ConvConfig()
    bias: bool = False
    inner_norm: NormConfig | None = None

    def __post_init__(self) -> None:
        _check_positive(self, "d_inner", "d_state", "dt_rank")


@record
class Mamba2Config:
    """A selective state space with one decay a head (Dao and Gu 2024)."""

    n_heads: int
    d_head: int
    d_state: int
    n_groups: int
    norm: NormConfig
    conv: ConvConfig = ConvConfig()
    dt_limit: tuple[float, float] = (0.0, float("inf"))
    bias: bool = False

    def __post_init__(self) -> None:
        _check_positive(self, "n_heads", "d_head", "d_state", "n_groups")
        _check(self.n_heads % self.n_groups == 0, f"{self.n_heads} heads don't fall into {self.n_groups} equal groups")


@record
class AdditiveAttentionConfig:
    """A recurrent network looks at a source: e_ij = v^T tanh(W s_{i-1} + U h_j), and the softmax over j of that weighs
    what the encoder made of the source (Bahdanau 2014, RNNsearch, section 3.1).
    """

    d_attention: int

    def __post_init__(self) -> None:
        _check_positive(self, "d_attention")


@record
class RecurrentConfig:
    """A network that reads token by token and keeps one vector of all it has read: a simple one (Elman 1990), an LSTM
    with a forget gate (Gers 2000), the one without (Hochreiter and Schmidhuber 1997), or a GRU (Cho 2014).
    """

    cell: Literal["simple", "lstm", "lstm_1997", "gru"]
    d_hidden: int
    forget_bias: float = 1.0
    """Where the forget gate of `lstm` starts; of no other cell."""
    gain: float = 1.0
    """The recurrent matrix begins orthogonal, times this."""
    both_ways: bool = False
    """A second cell reads from the end. Their hidden vectors stand side by side, each of `d_hidden` numbers."""
    source: AdditiveAttentionConfig | Literal["last"] | None = None
    """How it looks at what an encoder made of a source: through attention at every step (RNNsearch), or it is given
    the encoder's last vector at its start and at every step (Cho 2014, RNNenc)."""

    def __post_init__(self) -> None:
        _check_positive(self, "d_hidden")
        cells = ("simple", "lstm", "lstm_1997", "gru")
        _check(self.cell in cells, f"RecurrentConfig.cell is {self.cell!r}; it must be one of {', '.join(cells)}")
        _check(
            self.source in (None, "last") or isinstance(self.source, AdditiveAttentionConfig),
            f"RecurrentConfig.source is {self.source!r}; it must be None, 'last' or an AdditiveAttentionConfig",
        )
        _check(
            self.source is None or not self.both_ways,
            "a network that looks at a source writes from left to right; it can't read both ways (both_ways)",
        )


@record
class ClampedGate:
    """(up + 1) * gate * sigmoid(alpha * gate), gate at most `limit` and up within it on both sides (gpt-oss)."""

    limit: float
    alpha: float


@record
class FeedForwardConfig:
    """Two matrices and an activation, or three with a gate (Shazeer 2020, GLU variants)."""

    d_ff: int
    activation: str | ClampedGate = "silu"
    gated: bool = True
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _check_positive(self, "d_ff")
        _check(self.gated or isinstance(self.activation, str), "a clamped gate needs a gated feed-forward (gated=True)")


@record
class RouterConfig:
    """How tokens choose experts, and with which weights.

    `score`: softmax over all experts and then the best (Mixtral), the best and then softmax over them (gpt-oss), or
    sigmoids (DeepSeek-V3). Groups: only experts of the `n_chosen_groups` best of `n_groups` groups can be chosen.
    """

    score: Literal["softmax", "topk_softmax", "sigmoid"] = "softmax"
    renormalise: bool = False
    scale: float = 1.0
    n_groups: int = 1
    n_chosen_groups: int = 1
    correction: bool = False
    """A learned number an expert that counts in choosing and not in weighing (DeepSeek-V3)."""
    bias: bool = False
    balance: float = 0.0
    """The weight of the balance loss in training."""


@record
class ExpertsConfig:
    """Each token goes to `n_chosen` of `n_experts` feed-forwards (Shazeer 2017), and to `shared` always."""

    n_experts: int
    n_chosen: int
    expert: FeedForwardConfig
    router: RouterConfig = RouterConfig()
    shared: FeedForwardConfig | None = None

    def __post_init__(self) -> None:
        _check_positive(self, "n_experts", "n_chosen")
        _check(self.n_chosen <= self.n_experts, f"a token can't choose {self.n_chosen} of {self.n_experts} experts")
        _check(
            self.n_experts % self.router.n_groups == 0,
            f"{self.n_experts} experts don't fall into {self.router.n_groups} equal groups",
        )


MixerConfig = AttentionConfig | LatentAttentionConfig | MambaConfig | Mamba2Config | RecurrentConfig


@record
class KeptHeads:
    """The heads that are left of those attention was made with, where others were cut off (Michel 2019)."""

    heads: tuple[int, ...]
    """Which, in order, as they were counted before any was cut."""
    of: int
    """How many there were."""
    of_kv: int
    """How many key-value heads there were; as many as heads where each has keys and values of its own."""

    def __post_init__(self) -> None:
        _check_positive(self, "of", "of_kv")
        inside = sorted({head for head in self.heads if 0 <= head < self.of})
        _check(
            bool(inside) and list(self.heads) == inside,
            f"the heads that are left are {list(self.heads)}; they must be some of 0 to {self.of - 1}, in order",
        )
        sizes = {sum(self._group(head) == group for head in self.heads) for group in self.groups}
        _check(
            len(sizes) == 1,
            f"of {self.of} heads on {self.of_kv} key-value heads, {list(self.heads)} are left: each key-value head "
            "that stays must serve as many; cut all of one's heads, or as many of each",
        )

    @property
    def groups(self) -> tuple[int, ...]:
        """The key-value heads that are left, in order."""
        return tuple(sorted({self._group(head) for head in self.heads}))

    def _group(self, head: int) -> int:
        return head * self.of_kv // self.of


@record
class SublayerConfig:
    """x = after(x + scale * dropout(out(op(pre(x))))). Which of the three norms exist is the norm placement:
    pre (GPT-2, Llama), after (post-norm, 2017), pre and out (sandwich, Gemma), out alone (OLMo 2).
    """

    op: MixerConfig | FeedForwardConfig | ExpertsConfig
    pre: NormConfig | None = None
    out: NormConfig | None = None
    after: NormConfig | None = None
    scale: float = 1.0
    dropout: float = 0.0
    kept: KeptHeads | None = None
    """Which of its heads `op` has, where some were cut off; `op` counts those it has."""
    residual: bool = True
    """The correction is added to x. False: it takes the place of x, as in recurrent networks."""

    def __post_init__(self) -> None:
        if self.kept is not None:
            here = (getattr(self.op, "n_heads", 0), getattr(self.op, "n_kv_heads", len(self.kept.groups)))
            left = (len(self.kept.heads), len(self.kept.groups))
            _check(
                isinstance(self.op, AttentionConfig | LatentAttentionConfig) and here == left,
                f"{left[0]} heads on {left[1]} key-value heads are left by `kept`, and the sub-layer has {here[0]} "
                f"on {here[1]}; heads that were cut off can't be shared out anew",
            )


@record
class BlockConfig:
    """A mixer that moves information between tokens, and a feed-forward that works within one.

    `cross`, between the two, looks at what an encoder made of the source, as a recurrent mixer with a `source` does
    itself. `parallel` feeds mixer and feed-forward the
    same x and adds both corrections at once (GPT-NeoX).
    """

    mixer: SublayerConfig
    cross: SublayerConfig | None = None
    ffn: SublayerConfig | None = None
    parallel: bool = False

    def __post_init__(self) -> None:
        _check(
            self.cross is None or isinstance(self.cross.op, AttentionConfig),
            "what looks at the source is attention (AttentionConfig)",
        )
        _check(
            not self.parallel
            or (self.ffn is not None and self.cross is None and self.mixer.after is None and self.ffn.after is None),
            "a parallel block needs a feed-forward, and no cross-attention and no norm after the addition",
        )
        _check(
            not self.parallel or (self.mixer.residual and self.ffn is not None and self.ffn.residual),
            "a parallel block adds both corrections to the stream; neither can take its place (residual)",
        )

    @property
    def looks_at_source(self) -> bool:
        """Whether it reads what an encoder made of a source."""
        op = self.mixer.op
        return self.cross is not None or (isinstance(op, RecurrentConfig) and op.source is not None)


# ---- whole models


@record
class TokensConfig:
    """A table of token vectors, and of `n_types` kinds of token (BERT's segments)."""

    vocab_size: int
    n_types: int = 0
    mask_dropout: MaskDropout | None = None
    zero_padding: bool = False
    """Padding enters the stream as zeros."""

    def __post_init__(self) -> None:
        _check_positive(self, "vocab_size")


@record
class MaskDropout:
    """Vectors of `mask_id` are zeros, and all others grow by (1 - trained) / (1 - share of masks) (ESM-2)."""

    mask_id: int
    trained: float = 0.15 * 0.8


@record
class PatchesConfig:
    """A picture in squares of `patch` pixels, each one token, behind `n_prefix` learned tokens (Dosovitskiy 2020)."""

    patch: int
    image: tuple[int, int]
    """Height and width in pixels of the pictures it was trained on."""
    channels: int = 3
    n_prefix: int = 1
    bias: bool = True

    def __post_init__(self) -> None:
        _check_positive(self, "patch", "channels")

    @property
    def grid(self) -> tuple[int, int]:
        """Patches down and across."""
        return self.image[0] // self.patch, self.image[1] // self.patch


@record
class FramesConfig:
    """A spectrogram of `n_mels` bands through convolutions with an activation each (Radford 2022, Whisper)."""

    n_mels: int
    kernel: int = 3
    strides: tuple[int, ...] = (1, 2)
    activation: str = "gelu"

    def __post_init__(self) -> None:
        _check_positive(self, "n_mels", "kernel")


FrontConfig = TokensConfig | PatchesConfig | FramesConfig


@record
class EmbedConfig:
    """What turns the input into the first state of the stream:
    project(dropout(norm(scale * front(x) + positions))).

    All before the projection has `width` numbers a token; None is the stream's width, without a projection.
    """

    front: FrontConfig
    positions: LearnedPositions | SinusoidalPositions | None = None
    scale: float = 1.0
    norm: NormConfig | None = None
    dropout: float = 0.0
    width: int | None = None


@record
class TransformConfig:
    """norm(activation(x @ W^T + b)), to `width` numbers."""

    width: int
    activation: str | None = "gelu"
    norm: NormConfig | None = None
    bias: bool = True


@record
class TokenHeadConfig:
    """Scores over the vocabulary: softcap(scale * (transform(stream) @ W^T + b)); `tie` shares W with the embedding."""

    tie: bool = True
    bias: bool = False
    scale: float = 1.0
    softcap: float | None = None
    transform: TransformConfig | None = None


Place = Literal["first", "second", "last", "mean", "end_id"]


@record
class PoolConfig:
    """One vector a text or picture: the stream at a place (or its mean), and perhaps a transform of it.

    `end_id`: the first token of that id (CLIP's text); where it is None, of the highest id in the text.
    """

    at: Place = "first"
    transform: TransformConfig | None = None
    end_id: int | None = None


@record
class LabelHeadConfig:
    """Scores over labels, of every token, of one place, or of the pooled vector."""

    n_labels: int
    at: Literal["every", "first", "second", "last", "mean", "pool"] = "first"
    transform: TransformConfig | None = None
    bias: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _check_positive(self, "n_labels")


@record
class HeadsConfig:
    """What reads the finished stream. `labels` are heads by name; `average_labels` adds their mean as `logits`."""

    tokens: TokenHeadConfig | None = None
    pool: PoolConfig | None = None
    labels: tuple[tuple[str, LabelHeadConfig], ...] = ()
    average_labels: bool = False
    contacts: bool = False
    """Which residues of a protein touch, from the attention patterns of all layers (see `clearhead.contacts`)."""

    def __post_init__(self) -> None:
        _check(
            self.pool is not None or all(head.at != "pool" for _, head in self.labels),
            "a label head reads the pooled vector, and there is no pool",
        )
        averaged = {(head.n_labels, head.at == "every") for _, head in self.labels} if self.average_labels else {()}
        _check(len(averaged) == 1, "averaged label heads must have the same labels, and all read every token or none")
        _check(bool(self.labels) or not self.average_labels, "there are no labels to average")


@record
class StackConfig:
    """An embedding, blocks, and a norm after the last."""

    embed: EmbedConfig
    blocks: tuple[BlockConfig, ...]
    norm: NormConfig | None = None
    share: tuple[int, ...] | None = None
    """Block i runs with the weights of block share[i] (ALBERT)."""

    def __post_init__(self) -> None:
        _check(len(self.blocks) > 0, "a stack needs at least one block")
        if self.share is not None:
            _check(
                len(self.share) == len(self.blocks) and all(0 <= s <= i for i, s in enumerate(self.share)),
                f"share is {self.share}; each of the {len(self.blocks)} blocks names itself or one before it",
            )


@record
class TokenIds:
    """Special tokens as the model's config names them."""

    bos: int | None = None
    eos: tuple[int, ...] = ()
    pad: int | None = None
    mask: int | None = None
    decoder_start: int | None = None
    """What a decoder with an encoder begins with."""


def _reads_both_ways(block: BlockConfig) -> bool:
    return isinstance(block.mixer.op, RecurrentConfig) and block.mixer.op.both_ways


@record
class TransformerConfig:
    """A whole model: an encoder, a decoder, or a decoder that looks at an encoder; and heads."""

    d_model: int
    encoder: StackConfig | None = None
    decoder: StackConfig | None = None
    heads: HeadsConfig = HeadsConfig()
    share_tokens: bool = True
    """Encoder and decoder have one table of token vectors between them."""
    context: int | None = None
    """The longest text the model was made for, in tokens."""
    ids: TokenIds = TokenIds()

    def __post_init__(self) -> None:
        _check_positive(self, "d_model")
        _check(self.encoder is not None or self.decoder is not None, "a model needs an encoder, a decoder, or both")
        crossed = self.decoder is not None and any(block.looks_at_source for block in self.decoder.blocks)
        _check(
            crossed == (self.encoder is not None and self.decoder is not None),
            "a decoder beside an encoder looks at it (BlockConfig.cross, or a recurrent mixer's source), and one alone "
            "has nothing to look at",
        )
        _check(
            self.decoder is None or not any(_reads_both_ways(block) for block in self.decoder.blocks),
            "a decoder writes from left to right, so it can't be read from its end (RecurrentConfig.both_ways)",
        )

    @property
    def stack(self) -> StackConfig:
        """The stack that gives the output."""
        stack = self.decoder or self.encoder
        assert stack is not None
        return stack

    @property
    def vocab_size(self) -> int:
        """How many token ids the model takes.

        Raises:
            ClearheadError: it takes no tokens.
        """
        front = self.stack.embed.front
        if not isinstance(front, TokensConfig):
            raise ClearheadError("this model takes no tokens, so it has no vocabulary")
        return front.vocab_size


def _pooled_width(config: TransformerConfig) -> int | None:
    pool = config.heads.pool
    return None if pool is None else config.d_model if pool.transform is None else pool.transform.width


@record
class TwoTowersConfig:
    """Two encoders that put texts and pictures into one space (Radford 2021, CLIP). Each pools to the same width."""

    text: TransformerConfig
    image: TransformerConfig
    logit_scale: float = 2.6592
    """The logarithm of what cosines are multiplied by, before training."""

    def __post_init__(self) -> None:
        text, image = (_pooled_width(tower) for tower in (self.text, self.image))
        _check(
            text == image is not None,
            f"the towers pool to vectors of {text} and {image} numbers; both need a pool, of one width",
        )

    @property
    def decoder(self) -> None:
        """Nothing in it writes, so that whoever needs a decoder finds none."""

    @property
    def vocab_size(self) -> int:
        """How many token ids the texts are made of."""
        return self.text.vocab_size


# ---- how weights begin


@record
class InitConfig:
    """How weights are drawn before training: normal, around zero. As it stands, it is GPT-2's way (Radford 2019,
    section 2.3); `deep=False` is BERT's (Devlin 2018), and `std=None, deep=False, tables=1.0` is T5's (Raffel 2020).
    """

    std: float | None = 0.02
    """The standard deviation of matrices; None is one by the root of the number of inputs."""
    deep: bool = True
    """Matrices that write to the stream are smaller by the root of their number, which keeps the stream's variance
    from growing with the number of additions."""
    tables: float | None = None
    """The standard deviation of the vectors of tokens and positions; None is that of matrices."""
