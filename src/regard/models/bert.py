"""BERT: a bidirectional encoder with a head for each task.

    tokens      subwords plus segments; [CLS] text [SEP], or [CLS] one [SEP] other [SEP]
    positions   a learned table, added to the tokens; then a norm
    attention   softmax with H heads, every token sees every token; norm after the sum
    head        a spec (HEADS): pretraining, masked, next_sentence, classes(3), tags(23), span; None: hidden states

``model(tokens, segments, lengths)`` returns the output of the head, ``model.hidden(...)`` the hidden states,
``model.pooled(hidden)`` one vector of the whole text. ``model.hidden_packed(tokens, lengths)`` is `hidden` of texts
concatenated without padding.

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
from regard.blocks import FEEDFORWARDS, NORMS
from regard.blocks.encoder import Encoder, EncoderBlock, build_positions
from regard.blocks.text_heads import HEADS, Loss
from regard.core.config import field
from regard.core.errors import Unsupported
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Int, Tensor, check_id_range, check_token_ids
from regard.core.spec import Spec, build_part, layer_spec, resolve
from regard.core.validation import validate
from regard.models.contract import ModelContract


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a BERT; the defaults are the paper's base model."""

    vocab: int
    width: int = 768
    heads: int = 12
    layers: int = 12
    ffn: int | None = None  # None: four times the width
    length: int = 512  # maximum length with learned positions
    segments: int = 2
    dropout: float = field(0.1, low=0, below=1)
    attention_dropout: float = field(0.1, low=0, below=1)
    norm_kind: str = "layer"
    eps: float = field(1e-12, above=0)
    feedforward: str = "gelu"
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module
    positions: str = "learned"
    head: str | None = "pretraining"  # a spec of HEADS; None: the hidden states
    initializer_range: float = field(0.02, above=0)  # standard deviation of the weights at the start


# Published models, vocabulary 30,522; minilm is the body of sentence-transformers' all-MiniLM-L6-v2.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"vocab": 30522, "width": 128, "heads": 2, "layers": 2},
    "mini": {"vocab": 30522, "width": 256, "heads": 4, "layers": 4},
    "small": {"vocab": 30522, "width": 512, "heads": 8, "layers": 4},
    "medium": {"vocab": 30522, "width": 512, "heads": 8, "layers": 8},
    "base": {"vocab": 30522},
    "large": {"vocab": 30522, "width": 1024, "heads": 16, "layers": 24},
    "minilm": {"vocab": 30522, "width": 384, "heads": 12, "layers": 6, "head": None},
}


class BERT(ModelContract):
    """Tokens to the output of the head."""

    forward_methods = ("hidden", "hidden_packed", "pooled")  # methods besides forward that FSDP must wrap

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
        pass_state: PassState | None = None,
    ) -> Any:
        """Return the output of the head.

        pretraining (B M V, B 2), masked B M V, classes B K, tags B N K, span B N 2, None: the hidden states B N C.

        A language-modelling head predicts the tokens at the positions `at` (None: all). With `loss`, its value for
        `targets` replaces the token logits. Texts are padded on the right, beyond `lengths`; outputs there are
        undefined.
        """
        x = self.hidden(tokens, segments, lengths, pass_state)
        if self.head is None:
            return x
        return self.head(x, None if self.pool is None else self.pooled(x), lengths, at, targets, loss)

    def hidden(
        self,
        tokens: Int[Tensor, "B N"],
        segments: Int[Tensor, "B N"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Return the hidden states of all tokens."""
        vectors = self._embed_tokens(check_token_ids(tokens), segments)
        return self.encoder(vectors, PaddingMask.from_lengths(tokens, lengths), pass_state)

    def hidden_packed(
        self,
        tokens: Int[Tensor, " T"],
        lengths: Int[Tensor, " B"],
        segments: Int[Tensor, " T"] | None = None,
        longest: int | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "T C"]:
        """Return the hidden states of concatenated texts, equal to `hidden` of each, without computing padding.

        `longest` bounds the lengths; on a GPU it saves a synchronisation. On a CPU, neighbouring texts of equal length
        are attended to together: sort them.
        """
        mask = DocumentMask(lengths, len(tokens), int(lengths.max()) if longest is None else longest)
        self.encoder.check_length(mask.max_length)
        x = self._embed_tokens(tokens[None], None if segments is None else segments[None])
        return self.encoder.forward_at(x, mask.positions()[None], mask, pass_state)[0]

    @property
    def can_pack(self) -> bool:
        """Whether `hidden_packed` is faster: softmax attention by SDPA, and positions without a bias."""
        mixers = [block.mix for block in self.encoder.blocks]
        plain = all(getattr(getattr(mix, "attend", None), "backend", "") == "sdpa" for mix in mixers)
        return plain and self.encoder.positions.kind != "bias"

    def pooled(self, hidden: Float[Tensor, "B N C"]) -> Float[Tensor, "B C"]:
        """Return one vector of the whole text: tanh of a linear map of the vector of [CLS]."""
        if self.pool is None:
            raise Unsupported(f"a BERT with the head '{self.config.head}' has no pooler; build it with head=None")
        return torch.tanh(self.pool(hidden[:, 0]))

    def _embed_tokens(self, tokens: Tensor, segments: Tensor | None) -> Tensor:
        """Sum token and segment embeddings; without segments all tokens are of segment 0."""
        check_id_range("token", tokens, self.config.vocab)
        if segments is None:
            return self.embed(tokens) + self.segment.weight[0].to(self.embed.weight.dtype)
        check_id_range("segment", segments, self.config.segments)
        return self.embed(tokens) + self.segment(segments)

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise the weights: normal, with std 0.02 in the paper, biases 0."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                module.weight.normal_(std=self.config.initializer_range)
                if getattr(module, "bias", None) is not None:
                    module.bias.zero_()  # type: ignore[operator]
        if hasattr(self.head, "words"):
            self.head.words.weight = self.embed.weight


class BERTEncoder(Encoder):
    """An encoder with a norm after the sum of embeddings and none at the end."""

    def __init__(self, blocks: list[EncoderBlock], positions: Any, norm: nn.Module, dropout: float) -> None:
        super().__init__(blocks, positions, None, dropout)
        self.embed_norm = norm

    def add_positions(self, x: Tensor, index: Int[Tensor, "#B N"]) -> Tensor:
        out: Tensor = self.drop(self.embed_norm(self.positions(x, index) if self.positions.kind == "added" else x))
        return out


def _block(config: Config, layer: int) -> EncoderBlock:
    mix = build_mixer(
        layer_spec(config.attention, layer),
        layer=layer,
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
