"""The Transformer: a stack, and heads that read its stream."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clearhead import taps as taps_
from clearhead.config import AttentionConfig, RotaryConfig, TransformerConfig
from clearhead.errors import ClearheadError
from clearhead.forward import Pass, Places, positions_from, restart
from clearhead.model.heads import TokenHead
from clearhead.model.init import initialise
from clearhead.model.stack import Stack
from clearhead.nn.rotary import same_frequencies
from clearhead.ops.masks import Mask, Positions, SameDocument
from clearhead.state import LayerState, State
from clearhead.taps import Taps


class Transformer(Stack):
    """A whole model, built from its config; the weights are random until something is loaded.

    `tokenizer` and `origin` (what it was loaded from) are set by `clearhead.load`.
    """

    sites: ClassVar[dict[str, str]] = taps_.MODEL

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config.d_model, config.stack)
        self.config = config
        head = config.heads.tokens
        self.head = TokenHead(config.d_model, config.stack.embed.front.vocab_size, head) if head is not None else None
        self.tokenizer: Any = None
        self.origin: Any = None
        for path, module in self.named_modules():
            if hasattr(module, "path"):
                module.path = path
        self._length_dependent = {
            op.positions
            for op in (block.mixer.op for block in config.stack.blocks)
            if isinstance(op, AttentionConfig)
            and isinstance(op.positions, RotaryConfig)
            and op.positions.depends_on_length
        }
        initialise(self)

    # ---- running

    def forward(
        self,
        tokens_BT: Int[Tensor, "B T"],
        *,
        present: Bool[Tensor, "B T"] | None = None,
        state: State | None = None,
        documents: Int[Tensor, "B T"] | None = None,
        mask: Mask | None = None,
        taps: Taps | None = None,
        backend: str = "auto",
        last: int | None = None,
    ) -> Float[Tensor, "B t v"]:
        """The logits (B, T, V), or the stream (B, T, D) of a model without a head.

        Args:
            tokens_BT: token ids.
            present: True where there is a token; padding may be anywhere. None: everywhere.
            state: what was read before, from `new_state()`; these tokens are added to it.
            documents: a number a token; a run of one number is a document, which a token sees alone, and where
                positions restart. What padding is numbered does not matter.
            mask: a predicate over absolute positions, ANDed to each layer's own mask.
            taps: who looks inside (see clearhead.taps).
            backend: the attention kernel; "auto" chooses.
            last: give only this many last slots.

        Raises:
            ClearheadError: a token id, a shape or a combination that the model has no answer to.
        """
        self._check_input(tokens_BT, present, documents, state)
        if last is not None and last < 0:
            raise ClearheadError(f"last is {last}; give how many last slots are wanted, 0 or more")
        n_new, n_before = tokens_BT.shape[1], 0 if state is None else state.length
        if present is not None:
            present = present.bool()
        try:
            if state is not None and self._length_dependent:
                tokens_BT, present = self._read_again_if_stale(tokens_BT, present, state)
                n_before = state.length
            p = self._pass(tokens_BT, present, state, documents, mask)
            p.taps, p.backend = taps, backend
            return self._read_out(self.run(tokens_BT, p), n_new if last is None else min(last, n_new), p)
        except BaseException:
            # Also when interrupted: a state that some layers have moved on and others not would be wrong for ever.
            if state is not None:
                state.undo(n_before)
            raise

    def _read_out(self, x_BTD: Tensor, n_out: int, p: Pass) -> Tensor:
        """The logits of the last `n_out` slots; of a model without a head, the stream there."""
        if n_out < x_BTD.shape[1]:
            x_BTD = x_BTD[:, x_BTD.shape[1] - n_out :]
        if self.head is None:
            return x_BTD
        return p.tap(self.path, "logits", self.head(x_BTD, self.embed.tokens.weight))

    def new_state(self, capacity: int | None = None) -> State:
        """An empty memory for one batch; `capacity` is how many tokens it is expected to hold."""
        return State(self._layer_states(capacity))

    def _layer_states(self, capacity: int | None = None) -> dict[str, LayerState]:
        return {path: m.new_state(capacity) for path, m in self.named_modules() if hasattr(m, "new_state") and path}

    def _pass(
        self,
        tokens_BT: Tensor,
        present: Tensor | None,
        state: State | None,
        documents: Tensor | None,
        mask: Mask | None,
    ) -> Pass:
        device = tokens_BT.device
        positions = positions_from(present, tokens_BT.shape[1], 0 if state is None else state.next)
        lengths = _lengths(positions, device)
        if state is not None:
            state.advance(positions, device)
            lengths = state.next if isinstance(state.next, int) else state.next[:, None]
        places = Places(positions, lengths)
        if documents is not None:
            places, run_BT = restart(positions, documents)
            same = SameDocument(_by_position(run_BT, positions))
            mask = same if mask is None else same & mask
        return Pass(positions=positions, places=places, device=device, mask=mask, state=state)

    def _read_again_if_stale(
        self, tokens_BT: Tensor, present: Tensor | None, state: State
    ) -> tuple[Tensor, Tensor | None]:
        """Where frequencies depend on the length, a longer text is rotated otherwise from its first token on.

        What the state holds was computed of the shorter text then, in every layer, so the whole text is read again:
        the result is that of one pass over all of it. With dynamic scaling this happens at every token beyond the
        trained length, with LongRoPE once.
        """
        new = positions_from(present, tokens_BT.shape[1], state.next)
        whole = state.positions.then(new, tokens_BT.device)
        before, after = state.read_as, _lengths(whole, tokens_BT.device)
        after = after if isinstance(after, int) else after[:, 0]
        all_tokens_BS = tokens_BT if state.tokens is None else torch.cat([state.tokens, tokens_BT], dim=1)
        if not all(same_frequencies(config, before, after) for config in self._length_dependent):
            state.restart(self._layer_states())
            present = (whole.rows(tokens_BT.device) >= 0).expand_as(all_tokens_BS)
            tokens_BT = all_tokens_BS
        state.tokens = all_tokens_BS
        return tokens_BT, present

    def _check_input(
        self, tokens_BT: Tensor, present: Tensor | None, documents: Tensor | None, state: State | None
    ) -> None:
        if tokens_BT.ndim != 2 or tokens_BT.shape[1] == 0:
            raise ClearheadError(
                f"tokens must be of shape (rows, length), not {tuple(tokens_BT.shape)}; give at least one"
            )
        if tokens_BT.dtype not in (torch.int64, torch.int32):
            raise ClearheadError(f"tokens are whole numbers (int64), not {tokens_BT.dtype}")
        if state is not None and state.length and state.n_rows not in (None, tokens_BT.shape[0]):
            raise ClearheadError(f"the state holds {state.n_rows} rows and there are {tokens_BT.shape[0]} of tokens")
        for name, other in (("present", present), ("documents", documents)):
            if other is not None and other.shape != tokens_BT.shape:
                raise ClearheadError(
                    f"{name} has shape {tuple(other.shape)} and tokens {tuple(tokens_BT.shape)}; they must be the same"
                )
        if documents is not None and state is not None:
            raise ClearheadError("documents are for whole passes; with a state, read each document with its own state")
        if tokens_BT.device.type == "cpu":
            low, high = tokens_BT.aminmax()
            n = self.config.stack.embed.front.vocab_size
            if int(low) < 0 or int(high) >= n:
                wrong = int(low) if int(low) < 0 else int(high)
                raise ClearheadError(
                    f"token {wrong} is not in this model's vocabulary of {n}: ids go from 0 to {n - 1}"
                )

    # ---- about it

    @property
    def unembedding(self) -> Tensor:
        """The matrix that scores the vocabulary, (V, D): the embedding itself where the two are tied."""
        if self.head is None:
            raise ClearheadError("this model has no token head")
        return self.embed.tokens.weight if self.head.weight is None else self.head.weight

    @property
    def dtype(self) -> torch.dtype:
        return self.embed.tokens.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.embed.tokens.weight.device

    def describe(self) -> str:
        """The model as a table of parts, in plain text."""
        from clearhead.model.describe import describe

        return str(describe(self))


def _lengths(positions: Positions, device: torch.device) -> int | Tensor:
    """How long each row's text is so far: one number, or (B, 1)."""
    if positions.span is not None:
        return positions.span[1]
    return positions.rows(device).max(dim=1, keepdim=True).values + 1


def _by_position(documents_BT: Tensor, positions: Positions) -> Tensor:
    """Document numbers in the order of absolute positions, so that padding in between does not shift them."""
    if positions.span is not None:
        return documents_BT
    rows_BT = positions.rows(documents_BT.device)
    # Padding is sent to a last column that is cut off.
    target_BT = torch.where(rows_BT < 0, rows_BT.shape[1], rows_BT)
    wide = documents_BT.new_full((rows_BT.shape[0], rows_BT.shape[1] + 1), -1)
    return wide.scatter(1, target_BT, documents_BT)[:, :-1]
