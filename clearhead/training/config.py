"""What a run is: one frozen record a part, as in `clearhead.config`. Every field can be set by its path on the command
line (`--set optim.lr=3e-4`), and all of them are written into every checkpoint.
"""

from __future__ import annotations

from typing import Literal

from clearhead.config import InitConfig, TransformerConfig, record
from clearhead.errors import UsageError
from clearhead.training.data.documents import Corpus, Share


def _check(holds: bool, text: str) -> None:
    if not holds:
        raise UsageError(text)


@record
class OptimConfig:
    """How weights move. `lr` is the peak, which the schedule scales."""

    name: Literal["adamw", "muon", "adafactor"] = "adamw"
    """Muon is for the hidden matrices, with AdamW for the rest."""
    lr: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1
    """Of matrices; norms and biases never decay."""
    clip: float = 1.0
    """The longest the gradient of all parameters together may be; 0 is off."""
    decay_embeddings: bool = False
    momentum: float = 0.95
    """Muon's."""

    def __post_init__(self) -> None:
        _check(self.lr > 0, f"optim.lr is {self.lr}; it must be more than 0")
        _check(self.clip >= 0, f"optim.clip is {self.clip}; it must be 0 (off) or more")


@record
class ScheduleConfig:
    """How the learning rate goes over a run, as a factor of the peak: up along `warmup` steps, and then its kind."""

    kind: Literal["constant", "cosine", "linear", "inverse_sqrt", "wsd"] = "cosine"
    """`wsd` is warm-up, stable, decay."""
    warmup: int = 100
    floor: float = 0.1
    """The factor at the end, of cosine, linear and wsd."""
    decay: float = 0.2
    """The share of all steps in which wsd decays."""

    def __post_init__(self) -> None:
        _check(self.warmup >= 0, f"schedule.warmup is {self.warmup}; it must be 0 steps or more")
        _check(0 <= self.floor <= 1, f"schedule.floor is {self.floor}; it must be from 0 to 1")
        _check(0 <= self.decay <= 1, f"schedule.decay is {self.decay}; it must be from 0 to 1")


@record
class BatchConfig:
    """What one step learns from: `rows` texts of `length` tokens."""

    rows: int = 8
    length: int = 512
    micro_rows: int | None = None
    """So many rows are in memory at a time; the result does not depend on it. None is all."""
    pack: Literal["documents", "plain", "rows"] = "documents"
    """Rows are filled with texts that don't see each other, or with running text; or each has one."""
    repeated: int = 0
    """So many of the rows are random tokens that repeat, from which heads that copy are learnt soonest."""

    def __post_init__(self) -> None:
        _check(self.rows > 0 and self.length > 0, f"a batch of {self.rows} rows of {self.length} tokens is empty")
        _check(
            self.micro_rows is None or self.micro_rows > 0,
            f"batch.micro_rows is {self.micro_rows}; it must be more than 0, or null for all rows at once",
        )
        _check(
            0 <= self.repeated < self.rows and (self.repeated == 0 or self.pack != "rows"),
            f"batch.repeated is {self.repeated}: rows of text must be left of {self.rows}, packed as documents or "
            "plain",
        )


@record
class ScaleConfig:
    """How a run is spread over the processes that `torchrun` starts."""

    shard: bool = False
    """Those that work on different rows keep a part each of weights, gradients and optimiser, and have the rest sent
    when it is needed (FSDP2). Beside `tensor` they always do."""
    tensor: int = 1
    """So many processes share every matrix: heads and hidden units, of which all layers need a multiple."""
    context: int = 1
    """So many processes share the tokens of every row: on GPUs only."""

    def __post_init__(self) -> None:
        for name in ("tensor", "context"):
            _check(getattr(self, name) > 0, f"run.scale.{name} is {getattr(self, name)}; it must be 1 process or more")


@record
class RunConfig:
    """How long a run is, and how it is computed."""

    steps: int = 600
    seed: int = 0
    """Of the first weights and of dropout."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What products are computed in. Weights and sums are kept in float32."""
    compile: bool = False
    """Have torch compile the blocks, which takes a while at the start."""
    recompute: bool = False
    """Keep only what goes from block to block, and compute the inside again in the backward pass: less memory."""
    average: float = 0.0
    """How much of the mean of the weights stays in each step (0.999 is usual); 0 keeps none. What is measured and
    saved is the mean."""
    scale: ScaleConfig = ScaleConfig()

    def __post_init__(self) -> None:
        _check(self.steps > 0, f"run.steps is {self.steps}; it must be more than 0")
        _check(0 <= self.average < 1, f"run.average is {self.average}; it must be from 0 (off) to less than 1")


@record
class EveryConfig:
    """After how many steps things happen. The last step does them all; 0 is never before it."""

    log: int = 10
    evaluate: int = 200
    save: int = 100
    held_out: int = 8
    """So many batches of held-out data are measured then; 0 is all of it."""
    keep: int = 2
    """So many checkpoints are kept; older ones go."""
    show: int = 0
    """Then a text is continued and an attention map drawn."""
    snapshots: tuple[int, ...] = ()
    """After these very steps (0 is before the first) the weights are kept in folders of their own."""

    def __post_init__(self) -> None:
        for name in ("log", "evaluate", "save", "held_out", "show"):
            _check(getattr(self, name) >= 0, f"every.{name} is {getattr(self, name)}; it must be 0 (never) or more")
        _check(self.keep > 0, f"every.keep is {self.keep}; at least the last checkpoint is kept")


@record
class DataConfig:
    """Texts, what cuts them into tokens, and which are held out to measure on."""

    corpus: Corpus
    tokenizer: Literal["bpe", "unigram", "wordpiece", "bytes", "pieces"] = "bpe"
    """The kind that is trained, on the texts that are not held out."""
    vocab_size: int = 4096
    pieces: tuple[str, ...] = ()
    """What words are made of, where nothing is to be trained (tokenizer=pieces); ## stands before those inside."""
    held_out: Share = 0.05
    """The share of texts that are never learnt from, or a pattern of the files that hold such."""
    seed: int = 0
    """Of which texts are held out, and of the order."""

    def __post_init__(self) -> None:
        share = 0 if isinstance(self.held_out, str) else self.held_out
        _check(0 <= share < 1, f"data.held_out is {self.held_out}; it must be from 0 to less than 1, or a pattern")


@record
class PicturesConfig:
    """Pictures and what each is of."""

    path: str
    """A folder with one folder a label (or two such, `train` and `test`), an .npz file of arrays, or `corpus:` and a
    name."""
    held_out: float = 0.05
    """The share of pictures that are never learnt from."""
    split: Literal["labels", "last", "own"] = "labels"
    """Which they are: of each label the same share, drawn by the seed; the last ones; or those that the data itself
    keeps apart, whatever share they are."""
    validation: float = 0.0
    """This share of the others, of each label, is measured in place of what is held out: to choose settings by."""
    seed: int = 0
    """Of which pictures are held out, of the order, and of how they are changed."""
    shift: int = 0
    """In training, each is moved by up to so many pixels, anew each time."""
    flip: bool = False
    """In training, half of them are mirrored, anew each time."""

    def __post_init__(self) -> None:
        for name in ("held_out", "validation"):
            share = getattr(self, name)
            _check(0 <= share < 1, f"data.{name} is {share}; it must be from 0 to less than 1")
        _check(self.shift >= 0, f"data.shift is {self.shift}; it must be 0 (off) or more pixels")


@record
class SpectrogramConfig:
    """How sounds are made into frames, of as many bands of pitch as the model reads (Radford 2022, section 2.2)."""

    rate: int = 16000
    """Samples a second of the sound files."""
    n_fft: int = 400
    """Samples that a frame looks at."""
    hop: int = 160
    """Samples from frame to frame."""
    seconds: int = 30
    """What the model hears at a time. Silence is added to what is shorter."""

    def __post_init__(self) -> None:
        for name in ("rate", "n_fft", "hop", "seconds"):
            value = getattr(self, name)
            _check(value > 0, f"data.spectrogram.{name} is {value}; it must be more than 0")


@record
class AugmentConfig:
    """How a sound is changed each time that it is learnt from, by numbers drawn anew."""

    shift: float = 0.0
    """It begins up to so many seconds later, as far as there is room."""
    masks: int = 0
    """So many times, some bands and some frames are hidden (Park 2019, SpecAugment)."""
    bands: int = 8
    """At most, a mask."""
    frames: int = 20

    def __post_init__(self) -> None:
        for name in ("shift", "masks", "bands", "frames"):
            value = getattr(self, name)
            _check(value >= 0, f"data.augment.{name} is {value}; it must be 0 or more")


@record
class SoundsConfig:
    """Recordings and what is said in each."""

    path: str
    """A table (.tsv, .csv, .jsonl), or a folder with one, that names sound files beside it; or `corpus:` and a name."""
    columns: tuple[str, ...] = ("file", "text", "speaker")
    """What the table calls the file, what is said in it, and who says it; without the last, nobody is told apart."""
    spectrogram: SpectrogramConfig | None = None
    """Null is what the checkpoint says that a run begins with, or else what Whisper hears."""
    augment: AugmentConfig = AugmentConfig()
    tokenizer: Literal["bpe", "unigram", "wordpiece", "bytes"] = "bpe"
    """The kind that is trained, on what is learnt from."""
    vocab_size: int = 512
    held_out: float = 0.05
    """The share of texts, and of speakers, that are never learnt from."""
    seed: int = 0
    """Of what is held out, of the order, and of how sounds are changed."""

    def __post_init__(self) -> None:
        _check(0 <= self.held_out < 1, f"data.held_out is {self.held_out}; it must be from 0 to less than 1")
        _check(
            len(self.columns) in (2, 3),
            f"data.columns are {', '.join(self.columns) or 'none'}; name that of the file, of what is said, and of who "
            "says it if there is one",
        )


@record
class TeacherConfig:
    """A larger model that is learnt from beside the data (Hinton 2015)."""

    source: str
    """What `clearhead.load` reads, or the folder of a run; of the same vocabulary or labels."""
    temperature: float = 2.0
    weight: float = 0.5
    """Of the teacher's distribution; the rest is the data's."""

    def __post_init__(self) -> None:
        what = "objective.teacher"
        _check(self.temperature > 0, f"{what}.temperature is {self.temperature}; it must be more than 0")
        _check(0 <= self.weight <= 1, f"{what}.weight is {self.weight}; it must be from 0 to 1")


@record
class MaskingConfig:
    """Of masked tokens: `share` of all are to be told; of these so many are masked, so many another token, and the rest
    stay (Devlin 2018, BERT, section 3.1).
    """

    share: float = 0.15
    masked: float = 0.8
    other: float = 0.1
    whole_words: bool = False
    """Words are chosen, and all tokens of one together."""

    def __post_init__(self) -> None:
        _check(0 < self.share <= 1, f"masking.share is {self.share}; it must be more than 0 and at most 1")
        _check(
            min(self.masked, self.other) >= 0 and self.masked + self.other <= 1,
            f"masking.masked is {self.masked} and masking.other {self.other}; they are shares of the chosen tokens, "
            "together at most 1",
        )


@record
class ObjectiveConfig:
    """What is learnt."""

    name: Literal["next_token", "masked_tokens", "source_to_target", "labels", "regress"] = "next_token"
    label_smoothing: float = 0.0
    head: str = ""
    """The head that is trained, by name, where the model has several."""
    teacher: TeacherConfig | None = None
    masking: MaskingConfig = MaskingConfig()


@record
class ModelConfig:
    """A model that starts from random weights, and the published family that its checkpoints are written as."""

    family: str
    config: TransformerConfig
    init: InitConfig | None = None
    """How its first weights are drawn; None is as its family's are."""


@record
class DecoderConfig:
    """A decoder by its sizes: norms before, rotary positions, a gated feed-forward, tied token vectors.

    Its vocabulary is the tokenizer's and its context the length of the batch's rows.
    """

    family: str
    """The published family that its checkpoints are written as; it must have words for all of this."""
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_ff: int
    qk_norm: bool = False
    dropout: float = 0.0
    """On the attention patterns."""


@record
class LoraConfig:
    """Two thin matrices beside every one of these, which alone are trained, and added to it when the model is saved
    (Hu 2021, LoRA).
    """

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: tuple[str, ...] = ("*.q_proj", "*.v_proj")
    """Addresses of projections, with * for anything."""

    def __post_init__(self) -> None:
        _check(self.rank > 0, f"model.lora.rank is {self.rank}; it must be 1 or more")
        _check(0 <= self.dropout < 1, f"model.lora.dropout is {self.dropout}; it must be from 0 to less than 1")


@record
class StartConfig:
    """A model that goes on from a checkpoint's weights, with its tokenizer."""

    source: str
    """What `clearhead.load` reads, or the folder of a run."""
    architecture: str | None = None
    """The published class to build; null is the checkpoint's own."""
    new_head: bool = False
    """A head that the checkpoint lacks starts from random weights."""
    n_kv_heads: int | None = None
    """Make so many key-value heads of the model's, each the mean of a group (Ainslie 2023)."""
    train: tuple[str, ...] | None = None
    """Addresses of the weights that move, with * for anything; the others stay as they are. Null is all, or where
    there is `lora` those of a new head."""
    lora: LoraConfig | None = None


@record
class Stages:
    """Runs one after another, each a field of a kind of this: what a later one begins from may be an earlier one's
    model, by the name `stage:` and that of its field."""


@record
class TrainConfig:
    """A whole run."""

    model: ModelConfig | DecoderConfig | StartConfig
    objective: ObjectiveConfig = ObjectiveConfig()
    data: DataConfig | PicturesConfig | SoundsConfig
    batch: BatchConfig = BatchConfig()
    optim: OptimConfig = OptimConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    run: RunConfig = RunConfig()
    every: EveryConfig = EveryConfig()
