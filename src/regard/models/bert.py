"""BERT: an encoder reads a text in both directions; what is asked of its vectors is a head.

    tokens      words, plus which of two texts each belongs to; [CLS] text [SEP], or [CLS] one [SEP] other [SEP]
    positions   a learned table, added to the tokens; then a norm
    attention   softmax with H heads, every token sees every token; norm after the sum
    head        of a table (blocks.heads): pretraining, masked, classes(3), tags(23), span; none: the vectors

``model(tokens, segments, lengths)`` is the head's answer, ``model.hidden(...)`` the vectors, ``model.pooled(hidden)``
one vector of the whole text. ``model.hidden_packed(tokens, lengths)`` reads texts of many lengths laid end to end, without any
padding, and gives the same vectors.

Devlin, Chang, Lee, Toutanova: BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding.
NAACL 2019. arXiv:1810.04805; Turc, Chang, Lee, Toutanova: Well-Read Students Learn Better (the small sizes). 2019.
arXiv:1908.08962; Wang et al.: MiniLM. NeurIPS 2020. arXiv:2002.10957
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.attention.mask import DocumentMask, PaddingMask
from regard.attention.mixers import build_mixer
from regard.blocks import FEEDFORWARDS, HEADS, NORMS
from regard.blocks.encoder import Encoder, EncoderBlock, build_positions
from regard.blocks.heads import Loss
from regard.core.config import field
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Float, Int, Tensor, check_token_ids
from regard.core.spec import Spec, build_part, layer_spec, resolve
from regard.core.validation import validate


@dataclass(frozen=True)
class Config:
    """Everything that shapes a BERT; the defaults are the paper's base model."""

    vocab: int
    width: int = 768
    heads: int = 12
    layers: int = 12
    ffn: int | None = None  # None: four times the width
    length: int = 512  # the longest text that learned positions know
    segments: int = 2
    dropout: float = field(0.1, low=0, below=1)
    attention_dropout: float = field(0.1, low=0, below=1)
    norm_kind: str = "layer"
    eps: float = field(1e-12, above=0)
    feedforward: str = "gelu"
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module of one's own
    positions: str = "learned"
    head: str | None = "pretraining"  # a spec of HEADS; None: the vectors themselves


# The published ones, all with a vocabulary of 30,522; minilm is the body of sentence-transformers' all-MiniLM-L6-v2.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"vocab": 30522, "width": 128, "heads": 2, "layers": 2},
    "mini": {"vocab": 30522, "width": 256, "heads": 4, "layers": 4},
    "small": {"vocab": 30522, "width": 512, "heads": 8, "layers": 4},
    "medium": {"vocab": 30522, "width": 512, "heads": 8, "layers": 8},
    "base": {"vocab": 30522},
    "large": {"vocab": 30522, "width": 1024, "heads": 16, "layers": 24},
    "minilm": {"vocab": 30522, "width": 384, "heads": 12, "layers": 6, "head": None},
}


class BERT(nn.Module):
    """Tokens in; out, what the head makes of their vectors."""

    forward_methods = ("hidden", "hidden_packed", "pooled")  # what is called on a model beside itself

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.width)
        self.segment = nn.Embedding(config.segments, config.width)
        blocks = [_block(config, layer) for layer in range(config.layers)]
        self.encoder = BERTEncoder(blocks, build_positions(config, causal=False), _norm(config), config.dropout)
        self.head: Any = None if config.head is None else _head(config)
        pools = self.head is None or self.head.uses_pooled
        self.pool = nn.Linear(config.width, config.width) if pools else None
        self.reset()

    def forward(
        self,
        tokens: Int[Tensor, "B N"],
        segments: Int[Tensor, "B N"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        at: Int[Tensor, "B M"] | None = None,
        targets: Int[Tensor, "B M"] | None = None,
        loss: Loss | None = None,
    ) -> Any:
        """The head's answer: pretraining (B M V, B 2), masked B M V, classes B K, tags B N K, span B N 2, none B N C.

        Words are asked for at the places `at` (None: at all). With a loss its value for these targets stands where word
        logits would. Padding stands on the right, beyond `score_by_length`; what is answered there means nothing.
        """
        x = self.hidden(tokens, segments, lengths)
        if self.head is None:
            return x
        return self.head(x, None if self.pool is None else self.pooled(x), lengths, at, targets, loss)

    def hidden(
        self,
        tokens: Int[Tensor, "B N"],
        segments: Int[Tensor, "B N"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B N C"]:
        """The vectors of all tokens."""
        return self.encoder(
            self._embed_tokens(check_token_ids(tokens), segments), PaddingMask.from_lengths(tokens, lengths)
        )

    def hidden_packed(
        self,
        tokens: Int[Tensor, " T"],
        lengths: Int[Tensor, " B"],
        segments: Int[Tensor, " T"] | None = None,
        longest: int | None = None,
    ) -> Float[Tensor, "T C"]:
        """The vectors of texts laid end to end: what `hidden` gives for each, and no work is done for padding.

        `longest` bounds the lengths; where they are on a GPU it saves waiting for them. On a CPU, texts of equal length
        side by side are attended to together: sort them.
        """
        mask = DocumentMask(lengths, len(tokens), int(lengths.max()) if longest is None else longest)
        self.encoder.check_length(mask.max_length)
        x = self._embed_tokens(tokens[None], None if segments is None else segments[None])
        return self.encoder.forward_at(x, mask.positions()[None], mask)[0]

    @property
    def can_pack(self) -> bool:
        """Whether `packed` is a gain: attention that is done text by text, and positions that need no scores."""
        mixers = [block.mix for block in self.encoder.blocks]
        plain = all(getattr(getattr(mix, "attend", None), "backend", "") == "sdpa" for mix in mixers)
        return plain and self.encoder.positions.kind != "bias"

    def pooled(self, hidden: Float[Tensor, "B N C"]) -> Float[Tensor, "B C"]:
        """One vector of the whole text: tanh of a linear map of the first token's, which is [CLS]."""
        if self.pool is None:
            raise Unsupported(f"a BERT with the head '{self.config.head}' has no pooler; build it with head=None")
        return torch.tanh(self.pool(hidden[:, 0]))

    def _embed_tokens(self, tokens: Tensor, segments: Tensor | None) -> Tensor:
        """Words, and which text they belong to: the first, where nothing is said."""
        _check_range("token", tokens, self.config.vocab)
        if segments is None:
            return self.embed(tokens) + self.segment.weight[0].to(self.embed.weight.dtype)
        _check_range("segment", segments, self.config.segments)
        return self.embed(tokens) + self.segment(segments)

    @torch.no_grad()
    def reset(self) -> None:
        """Fresh weights, as the paper's: normal with 0.02, biases 0."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                module.weight.normal_(std=0.02)
                if getattr(module, "bias", None) is not None:
                    module.bias.zero_()  # type: ignore[operator]
        if hasattr(self.head, "words"):
            self.head.words.weight = self.embed.weight


class BERTEncoder(Encoder):
    """An encoder with a norm on the way in, where words, segments and positions are summed, and none on the way out."""

    def __init__(self, blocks: list[EncoderBlock], positions: Any, norm: nn.Module, dropout: float) -> None:
        super().__init__(blocks, positions, None, dropout)
        self.embed_norm = norm

    def add_positions(self, x: Tensor, index: Int[Tensor, "#B N"]) -> Tensor:
        """Tokens that know where they are, normed."""
        out: Tensor = self.drop(self.embed_norm(self.positions(x, index) if self.positions.kind == "added" else x))
        return out


def _check_range(what: str, numbers: Tensor, size: int) -> None:
    """Refuse numbers that a table has no row for. Not on a GPU: to read one there is to wait."""
    if numbers.device.type != "cpu" or torch.compiler.is_compiling() or not numbers.numel():
        return
    low, high = (int(x) for x in numbers.aminmax())
    if low < 0 or high >= size:
        raise BadInput(f"{what} {low if low < 0 else high} is not among the {size} of this model")


def _block(config: Config, layer: int) -> EncoderBlock:
    mix = build_mixer(
        layer_spec(config.attention, layer),
        width=config.width,
        heads=config.heads,
        length=config.length,
        dropout=config.attention_dropout,
    )
    hidden = 4 * config.width if config.ffn is None else config.ffn
    feed = build_part(FEEDFORWARDS, config.feedforward, "feed-forward", width=config.width, hidden=hidden)
    return EncoderBlock(mix, feed, [_norm(config), _norm(config)], False, config.dropout)


def _norm(config: Config) -> nn.Module:
    part: nn.Module = build_part(NORMS, config.norm_kind, "norm", normalized_shape=config.width, eps=config.eps)
    return part


def _head(config: Config) -> nn.Module:
    activation = getattr(resolve(FEEDFORWARDS, Spec.parse(config.feedforward).name, "feed-forward"), "activation", None)
    part: nn.Module = build_part(
        HEADS,
        config.head,
        "head",
        width=config.width,
        vocab=config.vocab,
        dropout=config.dropout,
        norm=_norm(config),
        **({} if activation is None else {"activation": activation}),
    )
    return part
