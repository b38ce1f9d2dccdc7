"""A BERT that answers questions about stories: every word sees every word, and there are no hops.

    tokens      [CLS] words of the question, then the sentences, the newest first
    positions   learned: how long ago a word was said
    attention   softmax, every token sees every token
    head        linear, on the pooled vector of [CLS]

The model to compare memory networks with, which see a sentence as one vector. O(N²) for N words. What does not fit into
`length` tokens are the words of the oldest sentences.

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from regard.blocks.sentence_vectors import move_padding_last
from regard.core.config import field
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import validate
from regard.models import bert
from regard.models.bert import BERT
from regard.models.contract import ModelContract
from regard.tokens.story_words import PAD, check_answers


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    vocab: int = 200  # word ids, those of padding and unknown words included
    num_classes: int = 20  # answers
    width: int = 128
    heads: int = 4
    layers: int = 4
    length: int = 400  # tokens, the question included
    max_sentences: int = 50  # of the data
    dropout: float = field(0.1, low=0, below=1)


SIZES: dict[str, dict[str, Any]] = {"tiny": {"width": 16, "heads": 2, "layers": 2, "length": 60}, "base": {}}


class StoryBERT(ModelContract):
    """Stories and questions in, logits of the answers out."""

    forward_methods = ("read",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        check_answers(config.num_classes, config.vocab)
        self.config, c = config, config
        self.encoder = BERT(
            bert.Config(
                vocab=c.vocab + 1,  # the last is [CLS]
                width=c.width,
                heads=c.heads,
                layers=c.layers,
                length=c.length,
                dropout=c.dropout,
                attention_dropout=c.dropout,
                head=f"classes({c.num_classes})",
            )
        )

    def forward(
        self,
        sentences: Int[Tensor, "B S W"],
        story_lengths: Int[Tensor, " B"],
        questions: Int[Tensor, "B V"],
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B K"]:
        """Return the logits of the answers; a story has `story_lengths` sentences, oldest first."""
        real = torch.arange(sentences.shape[1], device=sentences.device) < story_lengths[:, None]
        story = (sentences * real[..., None]).flip(1).flatten(1)
        rows = F.pad(torch.cat([questions, story], 1), (1, 0), value=self.config.vocab)
        tokens = move_padding_last(rows)[:, : self.config.length]
        asked = 1 + (questions != PAD).sum(1, keepdim=True)
        segments = (torch.arange(tokens.shape[1], device=rows.device) >= asked).long()
        lengths = (rows != PAD).sum(1).clamp(max=self.config.length)
        logits: Tensor = self.encoder(tokens, segments, lengths, pass_state=pass_state)
        return logits

    def read(
        self, sentences: Int[Tensor, "B S W"], story_lengths: Int[Tensor, " B"], questions: Int[Tensor, "B V"]
    ) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B hops S"]]:
        """Return the logits of the answers; there are no hops."""
        logits = self(sentences, story_lengths, questions)
        return logits, logits.new_zeros(*sentences.shape[:1], 0, sentences.shape[1])
