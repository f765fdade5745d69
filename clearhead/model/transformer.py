"""The Transformer: a stack, perhaps an encoder that it looks at, and heads that read its stream."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from clearhead import taps as taps_
from clearhead.config import (
    AttentionConfig,
    LatentAttentionConfig,
    RotaryConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.forward import Inputs, Pass, Places, Source, positions_from, restart
from clearhead.layer_state import LayerState
from clearhead.model.checks import check_ids, check_kind, check_rows, check_shape, check_tokens
from clearhead.model.heads import LabelHead, Pool, TokenHead
from clearhead.model.init import initialise
from clearhead.model.stack import Stack
from clearhead.nn.linear import Linear
from clearhead.nn.rotary import same_frequencies
from clearhead.ops.masks import Mask, Positions, SameDocument
from clearhead.state import State
from clearhead.taps import Taps


class Transformer(Stack):
    """A whole model, built from its config; the weights are random until something is loaded.

    The model is the stack that gives the output: a decoder, or an encoder alone. The encoder that a decoder looks at
    is its part `encoder`. `tokenizer` and `origin` (what it was loaded from) are set by `clearhead.load`.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config.d_model, config.stack)
        self.config = config
        self.sites = taps_.STACK if config.heads.tokens is None else taps_.MODEL
        self.encoder = Stack(config.d_model, config.encoder) if config.encoder and config.decoder else None
        if self.encoder is not None and config.share_tokens:
            mine, theirs = self.embed.tokens, self.encoder.embed.tokens
            if mine is not None and theirs is not None:
                theirs.weight = mine.weight
        heads = config.heads
        self.head = TokenHead(config.d_model, config.vocab_size, heads.tokens) if heads.tokens is not None else None
        self.pool = Pool(config.d_model, heads.pool) if heads.pool is not None else None
        transform = heads.pool.transform if heads.pool is not None else None
        d_pool = transform.width if transform is not None else config.d_model
        self.labels = nn.ModuleDict({name: LabelHead(config.d_model, head, d_pool) for name, head in heads.labels})
        self.contacts = _contacts(config)
        self.tokenizer: Any = None
        self.origin: Any = None
        for path, module in self.named_modules():
            if hasattr(module, "path"):
                module.path = path
        self._length_dependent = {
            op.positions
            for op in (block.mixer.op for block in config.stack.blocks)
            if isinstance(op, AttentionConfig | LatentAttentionConfig)
            and isinstance(op.positions, RotaryConfig)
            and op.positions.depends_on_length
        }
        initialise(self)

    # ---- running

    def forward(
        self,
        tokens_BT: Int[Tensor, "B T"] | None = None,
        *,
        source: Int[Tensor, "B S"] | None = None,
        source_present: Bool[Tensor, "B S"] | None = None,
        token_types: Int[Tensor, "B T"] | None = None,
        pixels: Float[Tensor, "B C height width"] | None = None,
        frames: Float[Tensor, "B M F"] | None = None,
        present: Bool[Tensor, "B T"] | None = None,
        state: State | None = None,
        documents: Int[Tensor, "B T"] | None = None,
        mask: Mask | None = None,
        taps: Taps | None = None,
        backend: str = "auto",
        last: int | None = None,
        read: bool = True,
    ) -> Any:
        """The logits (B, T, V), or the stream (B, T, D) of a model without a head. A model with several heads returns
        a named tuple of what each gives: `stream` (where nothing else reads it), `tokens`, `pooled`, its labels'
        names, and `logits` where the labels are averaged.

        Args:
            tokens_BT: token ids; of the decoder, where there is an encoder too.
            source: token ids for the encoder. With a state it is given once, with the first tokens.
            source_present: as `present`, for the source.
            token_types: which kind each token is, for models that have kinds (BERT's segments).
            pixels: pictures, for models that read them.
            frames: spectrograms, (B, bands, frames).
            present: True where there is a token; padding may be anywhere. None: everywhere.
            state: what was read before, from `new_state()`; these tokens are added to it.
            documents: a number a token; a run of one number is a document, which a token sees alone, and where
                positions restart. What padding is numbered does not matter.
            mask: a predicate over absolute positions, ANDed to each layer's own mask.
            taps: who looks inside (see clearhead.taps).
            backend: the attention kernel; "auto" chooses.
            last: give only this many last slots.
            read: False gives the finished stream (B, T, D), which no head has read.

        Raises:
            ClearheadError: a token id, a shape or a combination that the model has no answer to.
        """
        two = self.encoder is not None
        inputs = Inputs(
            tokens_BT=tokens_BT,
            token_types_BT=token_types,
            pixels_BCHW=None if two else pixels,
            frames_BMF=None if two else frames,
        )
        source_inputs = Inputs(tokens_BT=source, pixels_BCHW=pixels, frames_BMF=frames) if two else None
        self._check_input(inputs, present, documents, state)
        if not two and (source is not None or source_present is not None):
            raise ClearheadError("this model has no encoder beside it to read a source; give tokens alone")
        if last is not None and last < 0:
            raise ClearheadError(f"last is {last}; give how many last slots are wanted, 0 or more")
        n_new, n_before = self.embed.n_slots(inputs), 0 if state is None else state.length
        if present is not None:
            present = present.bool()
        had_source = state is not None and state.has_source
        try:
            looked_at = self._read_source(source_inputs, source_present, state, taps, backend)
            if looked_at is not None:
                check_rows(looked_at.x_BSD, _tokens(inputs))
            if state is not None and self._length_dependent:
                tokens_BT, present = self._read_again_if_stale(_tokens(inputs), present, state)
                inputs, n_before = Inputs(tokens_BT=tokens_BT), state.length
            p = self._pass(inputs, present, state, documents, mask)
            p.source, p.taps, p.backend = looked_at, taps, backend
            n_out = n_new if last is None else min(last, n_new)
            x_BTD = self.run(inputs, p)
            return self._read_out(x_BTD, n_out, inputs, p) if read else x_BTD[:, x_BTD.shape[1] - n_out :]
        except BaseException:
            # Also when interrupted: a state that some layers have moved on and others not would be wrong for ever.
            if state is not None:
                state.undo(n_before)
                if not had_source:
                    state.forget_source()
            raise

    def encode(
        self,
        source: Int[Tensor, "B S"] | None = None,
        *,
        source_present: Bool[Tensor, "B S"] | None = None,
        pixels: Float[Tensor, "B C height width"] | None = None,
        frames: Float[Tensor, "B M F"] | None = None,
        taps: Taps | None = None,
        backend: str = "auto",
    ) -> Float[Tensor, "B S d"]:
        """What the encoder beside the decoder makes of a source.

        Raises:
            ClearheadError: there is no such encoder, or the source is not of the kind it reads.
        """
        inputs = Inputs(tokens_BT=source, pixels_BCHW=pixels, frames_BMF=frames)
        looked_at = self._read_source(inputs, source_present, None, taps, backend)
        if looked_at is None:
            raise ClearheadError("this model has no encoder beside a decoder; call the model itself")
        return looked_at.x_BSD

    def _read_source(
        self, inputs: Inputs | None, present: Tensor | None, state: State | None, taps: Taps | None, backend: str
    ) -> Source | None:
        """The encoder's stream, where a source is given."""
        if self.encoder is None or inputs is None:
            return None
        if inputs == Inputs():
            if state is not None and state.has_source:
                return None
            raise ClearheadError("this model looks at a source: pass source= (or frames=, pixels=) with the tokens")
        if state is not None and state.has_source:
            raise ClearheadError("the state holds a source already; start a new state for another one")
        check_kind(inputs, self.encoder.embed, "source")
        if inputs.tokens_BT is not None:
            check_tokens(inputs.tokens_BT, self.encoder.embed, "source")
            check_shape("source_present", present, inputs.tokens_BT, "source")
        elif present is not None:
            raise ClearheadError("source_present goes with a source of tokens; this model's encoder reads none")
        n_slots = self.encoder.embed.n_slots(inputs)
        positions = positions_from(None if present is None else present.bool(), n_slots, 0)
        device = self.device
        p = Pass(positions=positions, places=Places(positions, _lengths(positions, device), device))
        p.taps, p.backend = taps, backend
        return Source(self.encoder.run(inputs, p), positions)

    def _read_out(self, x_BTD: Tensor, n_out: int, inputs: Inputs, p: Pass) -> Any:
        """What the heads give; the token head of the last `n_out` slots."""
        heads: dict[str, Tensor] = {}
        pooled_BD = self.pool(x_BTD, inputs, p) if self.pool is not None else None
        labels = {name: head(x_BTD, pooled_BD, inputs, p) for name, head in self.labels.items()}
        last_BtD = x_BTD if n_out == x_BTD.shape[1] else x_BTD[:, x_BTD.shape[1] - n_out :]
        if self.head is not None:
            embedding_VD = self.embed.tokens.weight if self.embed.tokens is not None else last_BtD
            heads["tokens"] = p.tap(self.path, "logits", self.head(last_BtD, embedding_VD))
        elif not labels:
            heads["stream"] = last_BtD
        if pooled_BD is not None and not any(head.at == "pool" for _, head in self.config.heads.labels):
            heads["pooled"] = pooled_BD
        heads |= labels
        if self.config.heads.average_labels:
            heads["logits"] = torch.stack(list(labels.values())).mean(dim=0)
        if len(heads) == 1:
            return next(iter(heads.values()))
        return namedtuple("Outputs", heads)(**heads)

    def new_state(self, capacity: int | None = None) -> State:
        """An empty memory for one batch; `capacity` is how many tokens it is expected to hold."""
        return State(self._layer_states(capacity))

    def _layer_states(self, capacity: int | None = None) -> dict[str, LayerState]:
        return {
            f"layers.{path}": m.new_state(capacity)
            for path, m in self.layers.named_modules()
            if hasattr(m, "new_state")
        }

    def _pass(
        self,
        inputs: Inputs,
        present: Tensor | None,
        state: State | None,
        documents: Tensor | None,
        mask: Mask | None,
    ) -> Pass:
        device = self.device if inputs.tokens_BT is None else inputs.tokens_BT.device
        positions = positions_from(present, self.embed.n_slots(inputs), 0 if state is None else state.next)
        lengths = _lengths(positions, device)
        if state is not None:
            state.advance(positions, device)
            lengths = state.next if isinstance(state.next, int) else state.next[:, None]
        places = Places(positions, lengths, device)
        if documents is not None:
            places, run_BT = restart(positions, documents)
            same = SameDocument(_by_position(run_BT, positions))
            mask = same if mask is None else same & mask
        return Pass(positions=positions, places=places, mask=mask, state=state)

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
            state.read_again(self._layer_states())
            present = (whole.rows(tokens_BT.device) >= 0).expand_as(all_tokens_BS)
            tokens_BT = all_tokens_BS
        state.tokens = all_tokens_BS
        return tokens_BT, present

    def _check_input(
        self, inputs: Inputs, present: Tensor | None, documents: Tensor | None, state: State | None
    ) -> None:
        if not isinstance(self.config.stack.embed.front, TokensConfig):
            of_tokens = (inputs.tokens_BT, inputs.token_types_BT, present, state, documents)
            if any(value is not None for value in of_tokens):
                raise ClearheadError(
                    "this model reads no tokens: it takes no tokens, token_types, present, state or documents"
                )
            check_kind(inputs, self.embed, "tokens")
            return
        check_kind(inputs, self.embed, "tokens")
        tokens_BT = _tokens(inputs)
        check_tokens(tokens_BT, self.embed, "tokens")
        if state is not None and state.length and self.config.decoder is None:
            raise ClearheadError("this model sees both ways, so a text can't be read in pieces; give it whole")
        if state is not None and state.length and state.n_rows not in (None, tokens_BT.shape[0]):
            raise ClearheadError(f"the state holds {state.n_rows} rows and there are {tokens_BT.shape[0]} of tokens")
        for name, other in (("present", present), ("documents", documents), ("token_types", inputs.token_types_BT)):
            check_shape(name, other, tokens_BT)
        if inputs.token_types_BT is not None:
            if self.embed.types is None:
                raise ClearheadError("this model has no kinds of token; leave token_types out")
            n_types = self.embed.types.num_embeddings
            check_ids("token_types", inputs.token_types_BT, n_types, f"one of this model's {n_types} kinds of token")
        if documents is not None and state is not None:
            raise ClearheadError("documents are for whole passes; with a state, read each document with its own state")

    # ---- about it

    @property
    def unembedding(self) -> Tensor:
        """The matrix that scores the vocabulary, (V, D): the embedding itself where the two are tied."""
        if self.head is None or self.embed.tokens is None:
            raise ClearheadError("this model has no token head")
        return self.embed.tokens.weight if self.head.weight is None else self.head.weight

    @property
    def takes_tokens(self) -> bool:
        """Whether it reads token ids, in either of its stacks."""
        return self.embed.tokens is not None

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def describe(self) -> str:
        """The model as a table of parts, in plain text."""
        from clearhead.model.describe import describe

        return str(describe(self))


def _contacts(config: TransformerConfig) -> Linear | None:
    """A logistic regression on every head of every layer. No pass runs it: it reads patterns, not the stream."""
    if not config.heads.contacts:
        return None
    ops = [block.mixer.op for block in config.stack.blocks]
    return Linear(sum(op.n_heads for op in ops if isinstance(op, AttentionConfig)), 1)


def _tokens(inputs: Inputs) -> Tensor:
    if inputs.tokens_BT is None:
        raise ClearheadError("this model reads tokens, and none were given")
    return inputs.tokens_BT


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
