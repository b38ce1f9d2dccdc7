"""Hybrid CTC and attention: one Conformer encoder, a CTC head and a Transformer decoder, trained and searched jointly.

    tokens      log-mel frames, subsampled; the encoder is models.conformer, whole, with its CTC head
    positions   relative in the encoder, sinusoids added in the decoder
    attention   causal self-attention of the decoder, and attention to the encoded frames
    heads       linear over V tokens after the decoder; linear over V labels and the blank at every frame

CTC is monotonic and knows no language, a decoder knows the language and may skip or repeat. So both are trained,

    L = (1 - λ) L_attention + λ L_CTC

and both judge every hypothesis while it is written (decoding.joint_search). `forward` returns the decoder's logits and
publishes those of CTC and their lengths in the pass state ("ctc").

Watanabe, Hori, Kim, Hershey, Hayashi: Hybrid CTC/Attention Architecture for End-to-End Speech Recognition. IEEE JSTSP
2017. Karita et al.: A Comparative Study on Transformer vs RNN in Speech Applications. ASRU 2019. arXiv:1909.06317
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from regard.attention.mask import DenseMask, PaddingMask
from regard.attention.mixers import build_mixer
from regard.blocks import FEEDFORWARDS
from regard.blocks.autoregressive import AutoregressiveModel
from regard.blocks.decoder import Decoder, DecoderBlock
from regard.core.config import field
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Int, Tensor, check_token_ids
from regard.core.spec import build_part
from regard.core.validation import validate
from regard.models import conformer
from regard.models.conformer import Conformer
from regard.models.contract import ModelContract
from regard.positions.added.sinusoidal import SinusoidalPositions


@dataclass(frozen=True)
class Config(conformer.Config):
    """Hyperparameters of a hybrid recognizer: those of its Conformer, and of the decoder."""

    decoder_layers: int = 6
    decoder_heads: int = 4
    decoder_ffn: int = 2048
    decoder_dropout: float = field(0.1, low=0, below=1)
    feedforward: str = "relu"  # of the decoder
    pad: int = field(0, low=0, below="vocab")
    bos: int = field(1, low=0)
    eos: int = field(2, low=0)


_SMALL: dict[str, Any] = {"decoder_layers": 2, "decoder_ffn": 576, "decoder_dropout": 0.2}
_TINY: dict[str, Any] = {"decoder_layers": 1, "decoder_ffn": 192}
_OWN: dict[str, dict[str, Any]] = {"small": _SMALL, "tiny": _TINY}

# As models.conformer, with a decoder of the same width.
SIZES: dict[str, dict[str, Any]] = {name: size | _OWN.get(name, {}) for name, size in conformer.SIZES.items()}


class HybridASR(AutoregressiveModel, ModelContract):
    """Frames and target tokens to logits of the next target token; decodes step by step (blocks.autoregressive)."""

    config: Config
    forward_methods: ClassVar[tuple[str, ...]] = ("encode", "ctc_logits")
    trained_by_task: ClassVar[tuple[str, ...]] = ("acoustic.head",)  # by CTC's loss

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = c = config
        self.acoustic = Conformer(c)
        self.embed = nn.Embedding(c.vocab, c.width, padding_idx=c.pad)
        blocks = [_decoder_block(c) for _ in range(c.decoder_layers)]
        self.decoder = Decoder(blocks, SinusoidalPositions(c.width), nn.LayerNorm(c.width), c.decoder_dropout)
        self.head = nn.Linear(c.width, c.vocab)
        self.reset()

    def forward(
        self,
        frames: Float[Tensor, "B N F"],
        target: Int[Tensor, "B T"],
        frame_lengths: Int[Tensor, " B"] | None = None,
        target_lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of the token after each target token; targets are padded on the right."""
        pass_state = PassState() if pass_state is None else pass_state
        memory, lengths = self.encode(frames, frame_lengths, pass_state.branch("encoder"))
        pass_state.layer(0).publish("ctc", (self.ctc_logits(memory), lengths))
        vectors = self.embed_tokens(check_token_ids(target, "target tokens"))
        return self.head(self.decoder(vectors, memory, None, PaddingMask(lengths), pass_state.branch("decoder")))

    def encode(
        self,
        frames: Float[Tensor, "B N F"],
        frame_lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> tuple[Float[Tensor, "B M C"], Int[Tensor, " B"]]:
        """Return the encoded frames, and their number in each recording."""
        return self.acoustic.encode(frames, frame_lengths, pass_state)

    def ctc_logits(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M L"]:
        """Return the logits of V labels and the blank (id V) at encoded frames."""
        return self.acoustic.ctc_logits(memory)

    def check_length(self, frames: int) -> None:
        """Raise `BadInput` for a recording that is too long; see models.conformer."""
        self.acoustic.check_length(frames)

    def embed_tokens(self, tokens: Int[Tensor, "B N"]) -> Float[Tensor, "B N C"]:
        """Return token embeddings scaled by √C."""
        return self.embed(tokens) * self.config.width**0.5

    @property
    def blank(self) -> int:
        """Id of CTC's blank label."""
        return self.config.vocab

    def start(
        self, source: Float[Tensor, "B N F"], source_lengths: Int[Tensor, " B"] | None = None, *, capacity: int
    ) -> tuple[Int[Tensor, "B 1"], Any]:
        """Encode the frames; return the first token of every target and a state for `capacity` slots."""
        return self.start_from(*self.encode(source, source_lengths), capacity=capacity)

    def start_from(
        self, memory: Float[Tensor, "B M C"], lengths: Int[Tensor, " B"], *, capacity: int
    ) -> tuple[Int[Tensor, "B 1"], Any]:
        """Do the same for encoded frames."""
        mask = None
        if int(lengths.min()) < memory.shape[1]:
            mask = DenseMask(PaddingMask(lengths).real(memory.shape[1])[:, None])
        first = torch.full((memory.shape[0], 1), self.config.bos, device=memory.device)
        return first, self.decoder.start(memory, mask, capacity)

    def reset(self) -> None:
        """Initialise matrices by Xavier; a fused matrix is initialised as one."""
        self.acoustic.reset()
        for part in (self.decoder, self.head):
            for module in part.modules():
                if isinstance(module, nn.Linear):
                    nn.init.xavier_uniform_(module.weight)
                    if module.bias is not None:
                        nn.init.zeros_(module.bias)
        nn.init.normal_(self.embed.weight, std=self.config.width**-0.5)
        with torch.no_grad():
            self.embed.weight[self.config.pad].zero_()


def _decoder_block(c: Config) -> DecoderBlock:
    mix, cross = (
        build_mixer("softmax", width=c.width, heads=c.decoder_heads, causal=not cross, cross=cross)
        for cross in (False, True)
    )
    feed = build_part(
        FEEDFORWARDS, c.feedforward, "feed-forward", width=c.width, hidden=c.decoder_ffn, dropout=c.decoder_dropout
    )
    return DecoderBlock(mix, cross, feed, [nn.LayerNorm(c.width) for _ in range(3)], True, c.decoder_dropout)
