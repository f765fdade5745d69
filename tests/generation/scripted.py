"""Stand-ins for generation's tests: a model that says what a script tells it, and tiny real ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    LearnedPositions,
    MaskConfig,
    NormConfig,
    RotaryConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokenIds,
    TokensConfig,
    TransformerConfig,
)
from clearhead.model.transformer import Transformer


def config(
    *,
    vocab_size: int = 50,
    positions: str = "rotary",
    window: int | None = None,
    context: int | None = 64,
    ids: TokenIds = TokenIds(),  # noqa: B008  (frozen)
) -> TransformerConfig:
    """Two layers of width 32, with rotary or learned positions; the first layer may have a window."""
    norm = NormConfig()
    blocks = tuple(
        BlockConfig(
            mixer=SublayerConfig(
                pre=norm,
                op=AttentionConfig(
                    n_heads=4,
                    n_kv_heads=2,
                    d_head=8,
                    mask=MaskConfig(window=window if layer == 0 else None),
                    positions=RotaryConfig() if positions == "rotary" else None,
                ),
            ),
            ffn=SublayerConfig(pre=norm, op=FeedForwardConfig(d_ff=48)),
        )
        for layer in range(2)
    )
    learned = LearnedPositions(n=context or 64) if positions == "learned" else None
    return TransformerConfig(
        d_model=32,
        decoder=StackConfig(
            embed=EmbedConfig(front=TokensConfig(vocab_size=vocab_size), positions=learned), blocks=blocks, norm=norm
        ),
        heads=HeadsConfig(tokens=TokenHeadConfig(tie=False)),
        context=context,
        ids=ids,
    )


def tiny(seed: int = 0, **how: Any) -> Transformer:
    """A random real model, its weights large enough that no two tokens are nearly as likely."""
    torch.manual_seed(seed)
    model = Transformer(config(**how)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3)
    return model


class Words:
    """A tokenizer whose token i is the i-th of a list of texts; spaces part the words of a prompt."""

    def __init__(self, pieces: list[str], *, bos_id: int | None = None, eos_ids: tuple[int, ...] = ()) -> None:
        self.pieces = pieces
        self.vocab_size = len(pieces)
        self.bos_id = bos_id
        self.eos_ids = eos_ids

    def encode(self, text: str, *, bos: bool = True) -> list[int]:
        ids = [self.pieces.index(word) for word in text.split()]
        return [self.bos_id, *ids] if bos and self.bos_id is not None else ids

    def stream(self) -> WordStream:
        return WordStream(self.pieces)


class WordStream:
    def __init__(self, pieces: list[str]) -> None:
        self._pieces = pieces

    def push(self, token: int) -> str:
        return self._pieces[token]

    def flush(self) -> str:
        return ""


class ScriptedState:
    def __init__(self) -> None:
        self.length = 0

    def select(self, rows: list[int], *, same_source: bool = False) -> None:
        pass


class Scripted(nn.Module):
    """Says the tokens of `script` one after the other behind any prompt of `n_prompt` tokens."""

    def __init__(self, script: list[int], vocab_size: int, *, n_prompt: int = 1, context: int | None = None) -> None:
        super().__init__()
        self.script = script
        self.n_prompt = n_prompt
        self.config = config(vocab_size=vocab_size, context=context)
        self.tokenizer: Any = None
        self.origin = None
        self.device = torch.device("cpu")
        self.dtype = torch.float32
        self.passes: list[tuple[int, int]] = []
        """The rows and tokens of each pass."""

    def new_state(self, capacity: int | None = None) -> ScriptedState:
        return ScriptedState()

    def forward(
        self,
        tokens_BT: Tensor,
        *,
        state: ScriptedState,
        last: int,
        backend: str,
        present: Tensor | None = None,
        taps: None = None,
    ) -> Tensor:
        state.length += tokens_BT.shape[1]
        self.passes.append(tuple(tokens_BT.shape))
        vocab_size = self.config.vocab_size
        logits_BTV = torch.zeros(len(tokens_BT), last, vocab_size)
        place = state.length - self.n_prompt
        if last and place < len(self.script):
            logits_BTV[:, -1, self.script[place]] = 9.0
        return logits_BTV


def saying(*pieces: str, end: bool = False) -> Scripted:
    """A model that says these pieces, one token each, then, if asked to, an end token; its prompt is token 0."""
    words = ["<start>", "<end>", *pieces]
    script = [*range(2, 2 + len(pieces)), *([1] if end else [])]
    model = Scripted(script, len(words))
    model.tokenizer = Words(words, eos_ids=(1,))
    return model
