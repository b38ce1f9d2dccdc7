"""A DNC that answers questions about stories: it writes sentences to its memory, then reads along them.

    tokens      a vector of each sentence, its words weighted by their places (blocks/sentence_vectors)
    positions   none: temporal links keep the order of the sentences
    attention   the heads of the DNC over its cells
    head        linear, on the controller's output and what was read at the last hop

    steps       s_1 ... s_S, then the question at each of `hops` steps; the answer after the last
    sentence    w_s = Σ_r Σ_n read_rn write_sn / Σ_s' ...      which sentences stand in the cells that are read

MemN2N keeps a cell for every sentence; here the model decides what is written, where, and what is freed. O(N²) a step
for the links, and S + hops steps after each other.

What differs from the paper: it reads a word at a step, a story with all of its questions in one tape, and answers word
by word. Here a sentence is a step (about seven times fewer), a tape has one question, and an answer is a class.

Graves et al.: Hybrid computing using a neural network with dynamic external memory. Nature 538, 2016
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.observed_weights import ObservedWeights
from regard.blocks.rnn import undecorated
from regard.blocks.sentence_vectors import sentence_vectors
from regard.core.config import field
from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.validation import validate
from regard.models import dnc
from regard.models.contract import ModelContract
from regard.models.dnc import DNC
from regard.tokens.story_words import check_answers


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    vocab: int = 200  # word ids, those of padding and unknown words included
    num_classes: int = 20  # answers
    width: int = 64  # of sentence vectors
    cells: int = 64  # N, of the memory
    word: int = 32  # W, numbers of a cell
    read_heads: int = 4
    hidden: int = 128  # of the controller, an LSTM
    hops: int = 3  # steps at the question
    max_sentences: int = 50  # of the data; the model itself has no limit
    dropout: float = field(0.1, low=0, below=1)  # of what the answer is read from
    temporal_links: bool = True  # read in the order of writing
    masking: bool = True  # compare only a part of a cell
    deallocation: bool = True  # clear cells that are freed
    sharpening: bool = True  # of addresses along links


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"width": 12, "cells": 8, "word": 6, "hidden": 16, "read_heads": 2, "hops": 2},
    "base": {},
    "graves": {"cells": 256, "word": 64, "hidden": 256, "masking": False, "deallocation": False, "sharpening": False},
}


class StoryDNC(ModelContract):
    """Stories and questions in, logits of the answers out."""

    forward_methods = ("read",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        check_answers(config.num_classes, config.vocab)
        self.config, c = config, config
        self.words = nn.Parameter(0.5 * torch.randn(c.vocab, 1, c.width))
        self.machine = DNC(
            dnc.Config(
                input_dim=2 * c.width,  # a sentence and a question; one of them is zeros
                output_dim=c.num_classes,
                cells=c.cells,
                word=c.word,
                read_heads=c.read_heads,
                hidden=c.hidden,
                temporal_links=c.temporal_links,
                masking=c.masking,
                deallocation=c.deallocation,
                sharpening=c.sharpening,
            )
        )
        self.hops = nn.ModuleList([ObservedWeights("hop") for _ in range(c.hops)])

    def forward(
        self, sentences: Int[Tensor, "B S W"], story_lengths: Int[Tensor, " B"], questions: Int[Tensor, "B V"]
    ) -> Float[Tensor, "B K"]:
        """Return the logits of the answers; a story has `story_lengths` sentences, oldest first."""
        read = undecorated(self.read) if torch.compiler.is_exporting() else self.read
        logits: Tensor = read(sentences, story_lengths, questions)[0]
        return logits

    @disable_compile(recursive=False)  # a loop as long as the story, whose steps may be compiled
    def read(
        self, sentences: Int[Tensor, "B S W"], story_lengths: Int[Tensor, " B"], questions: Int[Tensor, "B V"]
    ) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B hops S"]]:
        """Return the logits of the answers, and the logarithm of the weights of the sentences at every hop."""
        with torch.autocast(sentences.device.type, enabled=False):
            size, hops = sentences.shape[1], self.config.hops
            # a story ends at the step before the question: padding comes first, and leaves the memory at its start
            place = torch.arange(size, device=sentences.device)
            at = place - size + story_lengths[:, None]
            real = F.pad(at >= 0, (0, hops), value=True)
            outputs, addresses = self._run(self._inputs(sentences, at.clamp(min=0), questions), real)
            shared = addresses[:, size:, :-1].mean(2) @ addresses[:, :size, -1].mT  # B hops S, of steps
            back = (place + size - story_lengths[:, None]).clamp(max=size - 1)
            shared = shared.gather(2, back[:, None].expand(-1, hops, -1)) * (place < story_lengths[:, None])[:, None]
            weights = shared / shared.sum(-1, keepdim=True).clamp(min=torch.finfo(shared.dtype).tiny)
            weights = torch.stack(
                [observed(weights[:, n, None, None])[:, 0, 0] for n, observed in enumerate(self.hops)], 1
            )
            found = F.dropout(outputs[:, -1], self.config.dropout, self.training)
            return self.machine.head(found), weights.clamp(min=torch.finfo(weights.dtype).tiny).log()

    def _inputs(
        self, sentences: Int[Tensor, "B S W"], at: Int[Tensor, "B S"], questions: Int[Tensor, "B V"]
    ) -> Float[Tensor, "B T twice_D"]:
        """Return what the controller is told at every step; step s has sentence `at[s]`."""
        told = sentence_vectors(sentences.flatten(0, 1), self.words)[:, 0].unflatten(0, sentences.shape[:2])
        told = told.gather(1, at[..., None].expand(-1, -1, told.shape[2]))
        asked = sentence_vectors(questions, self.words).expand(-1, self.config.hops, -1)
        return torch.cat([F.pad(told, (0, told.shape[2])), F.pad(asked, (asked.shape[2], 0))], 1)

    def _run(
        self, inputs: Float[Tensor, "B T G"], real: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T F"], Float[Tensor, "B T H N"]]:
        """Return the controller's output with what was read, and the addresses of all heads, at every step."""
        machine = self.machine
        state, outputs, addresses = machine.start(inputs.shape[0]), [], []
        known = machine.controller.inputs(inputs)
        for x, is_real in zip(known.unbind(1), real[..., None].unbind(1), strict=True):
            h, state = machine.step(x, state, is_real)
            outputs.append(torch.cat([h, state.reads], -1))
            addresses.append(state.address)
        return torch.stack(outputs, 1), torch.stack(addresses, 1)
