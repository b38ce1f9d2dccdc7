"""RNNsearch: before each word it writes, a recurrent decoder looks over the whole source for where to read.

    tokens      an embedding table for each side (or one for both and the output, tied)
    positions   none: recurrence reads in order, the source in both directions
    attention   additive: the state before a word against every place of the source, one step at a time
    head        maxout over state, context and last word, then linear

Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate. ICLR 2015. arXiv:1409.0473

Two details are as is usual now and not as in the paper's appendix: the reset gate acts after the product (as in
PyTorch), and the output sees the state that has read the context, s_i as in the paper's equation 4, not s_{i-1}.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from regard.attention import ALIGNERS
from regard.attention.mask import Keys
from regard.attention.protocol import context
from regard.blocks.recurrent import Bidirectional, Cell
from regard.core.errors import RegardError
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import make


@dataclass(frozen=True)
class Config:
    """Everything that shapes an RNNsearch; the defaults are the paper's (which has no dropout)."""

    vocab: int
    width: int = 620  # of the embeddings
    hidden: int = 1000  # of the decoder's state, and of the encoder's in each direction
    align: int | None = None  # hidden units of the aligner's score; None: as `hidden`
    readout: int | None = 500  # maxout units before the head; None: as `width`
    dropout: float = 0.0  # of embeddings, and of what the head reads
    aligner: Any = "additive"  # a spec, or a module of one's own
    tied: bool = False  # one table for source, target and output
    pad: int = 0
    bos: int = 1
    eos: int = 2


# Base is the paper's (appendix A and B); small is for some ten thousand pairs, tiny for a laptop.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "small": {"width": 256, "hidden": 512, "align": 256, "readout": None, "dropout": 0.4, "tied": True},
    "tiny": {"width": 128, "hidden": 128, "readout": None, "dropout": 0.2, "tied": True},
}


class RNNSearch(nn.Module):
    """Source and target tokens in, logits of the next target token out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        width, hidden, both = config.width, config.hidden, 2 * config.hidden
        align, readout = config.align or hidden, config.readout or width
        if config.tied and readout != width:
            raise RegardError(f"a tied head needs readout = width, not {readout} and {width}; set readout=None")
        self.embed = nn.Embedding(config.vocab, width, padding_idx=config.pad)
        self.encoder = Bidirectional(width, hidden)
        self.first = nn.Linear(hidden, hidden)  # the encoder's last state on the way back -> the decoder's first
        self.embed_target = nn.Embedding(config.vocab, width, padding_idx=config.pad)
        self.aligner = make(ALIGNERS, config.aligner, "aligner", query_width=hidden, memory_width=both, width=align)
        self.cell = Cell(width, both, hidden)
        self.readout = nn.Linear(hidden + both + width, 2 * readout)
        self.head = nn.Linear(readout, config.vocab, bias=False)
        self.drop = nn.Dropout(config.dropout)
        self.reset()

    def forward(
        self,
        source: Int[Tensor, "B N"],
        target: Int[Tensor, "B T"],
        source_lengths: Int[Tensor, " B"] | None = None,
        target_lengths: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of the token after each target token. Padding of the target stands on the right, after all it could
        disturb."""
        memory, state = self.encode(source, source_lengths)
        words = self.drop(self.embed_target(target))
        states, contexts = self.read(self.cell.known(words), state, memory)
        return self.logits(states, contexts, words)

    def encode(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Memory, Float[Tensor, "B 1 F"]]:
        """What the decoder looks at, and the state it begins with: that of the way back, at the first word."""
        values = self.encoder(self.drop(self.embed(source)), source_lengths)
        mask = None if source_lengths is None else Keys(source_lengths).real(source.shape[1])
        keys = self.aligner.keys(values)
        state = torch.tanh(self.first(values[:, :1, self.config.hidden :]))
        # under autocast: narrow what every step reads, once; what is carried from step to step stays as it was
        return Memory(values.to(keys.dtype), keys, mask), state.to(self.first.weight.dtype)

    @torch.compiler.disable(recursive=False)  # the loop stays in Python: one small graph, compiled once, for every step
    def read(
        self, known: Float[Tensor, "B T gates"], state: Float[Tensor, "B 1 F"], memory: Memory
    ) -> tuple[Float[Tensor, "B T F"], Float[Tensor, "B T C"]]:
        """The states and contexts of a whole target, one after the other."""
        remembered, states, contexts = None, [], []
        for one in known.split(1, dim=1):  # not known[:, t], whose gradient would be a whole B T tensor at each step
            state, seen, remembered = self.look(one, state, memory, remembered)
            states.append(state)
            contexts.append(seen)
        return torch.cat(states, 1), torch.cat(contexts, 1)

    def look(
        self, known: Float[Tensor, "B K gates"], state: Float[Tensor, "B K F"], memory: Memory, remembered: Any
    ) -> tuple[Float[Tensor, "B K F"], Float[Tensor, "B K C"], Any]:
        """One step: look from the state so far, then move on with what was seen and the last word."""
        weights, remembered = self.aligner(state, memory.keys, memory.mask, remembered)
        seen = context(weights, memory.values)
        return self.cell(known, seen, state), seen, remembered

    def logits(
        self, states: Float[Tensor, "B T F"], contexts: Float[Tensor, "B T C"], words: Float[Tensor, "B T E"]
    ) -> Float[Tensor, "B T V"]:
        """The deep output: the larger of each pair of units, then a score for every word."""
        pairs = self.readout(torch.cat([states, contexts, words], -1)).unflatten(-1, (-1, 2))
        return self.head(self.drop(pairs.amax(-1)))

    # -- writing, one token after another ------------------------------------------------------------------------------

    @property
    def eos(self) -> int:
        """The token that ends a target."""
        return self.config.eos

    def start(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None, *, room: int
    ) -> tuple[Int[Tensor, "B 1"], State]:
        """Read the source once; the first token of every target. A recurrent state never grows: it needs no room."""
        memory, state = self.encode(source, source_lengths)
        first = torch.full((source.shape[0], 1), self.config.bos, device=source.device)
        return first, State(memory, state)

    def step(self, tokens: Int[Tensor, "B K"], state: State) -> tuple[Float[Tensor, "B K V"], State]:
        """Logits of the next token of every beam."""
        words = self.drop(self.embed_target(tokens))
        hidden, seen, remembered = self.look(self.cell.known(words), state.hidden, state.memory, state.remembered)
        return self.logits(hidden, seen, words), state.moved(hidden, remembered)

    def select(self, state: State, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> State:
        """Keep the inputs `rows` (None: all), of each the beams `beams`; only dropping inputs moves the memory."""
        own = (torch.arange(beams.shape[0], device=beams.device) if rows is None else rows)[:, None]
        hidden, remembered = state.hidden[own, beams], _each(lambda x: x[own, beams], state.remembered)
        if rows is None:
            return state.moved(hidden, remembered)
        return replace(state, memory=state.memory.rows(rows), hidden=hidden, remembered=remembered)

    def freeze(self, state: State) -> State:
        """From here on a step overwrites the state, so that it can be recorded and replayed."""
        return replace(state, frozen=True)

    def reset(self) -> None:
        """Fresh embeddings and output, small enough that every word is about as likely; the parts start themselves."""
        for part in (self.first, self.readout, self.head):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        for table in (self.embed, self.embed_target):
            nn.init.normal_(table.weight, std=self.config.width**-0.5)
            with torch.no_grad():
                table.weight[self.config.pad].zero_()
        if self.config.tied:
            self.embed_target.weight = self.head.weight = self.embed.weight


@dataclass(frozen=True, eq=False)
class Memory:
    """What a source left to look at; the beams of an input share it."""

    values: Float[Tensor, "B M C"]
    keys: Float[Tensor, "B M A"]
    mask: Bool[Tensor, "B M"] | None

    def rows(self, rows: Int[Tensor, " R"]) -> Memory:
        """Keep these inputs."""
        return Memory(self.values[rows], self.keys[rows], None if self.mask is None else self.mask[rows])


@dataclass(frozen=True, eq=False)
class State:
    """Everything that decoding carries from step to step."""

    memory: Memory
    hidden: Float[Tensor, "B K F"]
    remembered: Any = None  # by the aligner: None, a tensor B K ..., or a tuple of such
    frozen: bool = False  # written in place, so that a recorded step reads what it wrote

    def moved(self, hidden: Tensor, remembered: Any) -> State:
        """The state after a step or a reordering of its beams."""
        if not self.frozen or hidden.shape != self.hidden.shape:
            return replace(self, hidden=hidden, remembered=remembered)
        self.hidden.copy_(hidden)
        _each(lambda old, new: old.copy_(new), self.remembered, remembered)
        return self


def _each(change: Callable[..., Tensor], *states: Any) -> Any:
    """Change every tensor of what an aligner remembers."""
    if states[0] is None:
        return None
    if isinstance(states[0], tuple):
        return tuple(_each(change, *parts) for parts in zip(*states, strict=True))
    return change(*states)
