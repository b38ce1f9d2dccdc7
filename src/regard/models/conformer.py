"""Conformer: attention and convolutions in every block, trained by CTC.

    tokens      log-mel frames, subsampled by strided convolutions by 2, 4 or 8
    positions   relative, in the scores of every layer (positions.bias.transformer_xl)
    layers      L Conformer blocks (blocks.conformer): ½ feed-forward, attention, convolution, ½ feed-forward, norm
    head        linear over V labels and, last, one blank, at every frame, as in models.ctc

Convolutions see the shape of a sound, attention the whole sentence. The paper's decoder is a transducer; this encoder
has a CTC head, and models.hybrid_asr adds an attention decoder to it. With `chunk_size` the encoder reads chunks of so
many subsampled frames (attention by chunk masks, causal convolutions), so that recordings can be read while they grow:

    state = model.start_stream(batch=1)
    logits, state = model.stream(frames, state)        # chunk_size · 2^subsampling_layers frames; the last may be fewer

and the logits of N chunks equal those of one `forward`. A subsampled frame needs no input frame after its own, so no
frame waits.

Gulati et al.: Conformer: Convolution-augmented Transformer for Speech Recognition. Interspeech 2020. arXiv:2005.08100
Rekesh et al.: Fast Conformer with Linearly Scalable Attention (subsampling "depthwise"). 2023. arXiv:2305.05084
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.blocks.conformer import BlockState, ConformerEncoder
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Int, Tensor
from regard.core.trace import Slots, receptive_fields
from regard.core.validation import validate
from regard.models.contract import ModelContract

KERNEL_SIZE = 3  # of the strided convolutions, in frames
MAX_SCORES = 2**28  # of one layer for one recording, those of distances among them: 1 GiB in float32


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a Conformer; the defaults are the paper's encoder M."""

    vocab: int  # labels, without the blank
    input_dim: int = 80  # features of a frame
    subsampling: Literal["conv2d", "depthwise", "conv1d"] = "conv2d"
    subsampling_layers: int = field(2, low=0, high=6)  # strided convolutions, each halves the frames
    channels: int = 256  # of the strided convolutions; the paper has as many as `width`
    width: int = 256
    heads: int = 4
    layers: int = 16
    ffn: int | None = None  # None: 4 width
    kernel: int = 31  # frames of the depthwise convolution, odd; the paper has 32
    conv_norm: Literal["batch", "layer"] = "batch"
    dropout: float = field(0.1, low=0, below=1)
    attention_dropout: float = field(0.0, low=0, below=1)
    drop_path: float = field(0.0, low=0, below=1)
    bias: bool = True  # of feed-forward and attention
    conv_bias: bool = True
    scale_input: bool = False  # subsampled frames are multiplied by √width
    attention: Any = "softmax"  # a spec of a mechanism that takes a bias, or a module
    chunk_size: int | None = None  # subsampled frames that are read together; None: the whole recording
    left_chunks: int | None = field(None, low=0)  # earlier chunks that attention sees; None: all


# S, m and l are Table 1 of the paper (10, 31 and 119 M parameters), small is for an hour of speech (AN4), tiny for
# strings of digits.
SIZES: dict[str, dict[str, Any]] = {
    "s": {"channels": 144, "width": 144},
    "m": {},
    "l": {"channels": 512, "width": 512, "heads": 8, "layers": 17},
    "small": {"channels": 64, "width": 144, "layers": 8, "kernel": 15, "dropout": 0.2},
    "tiny": {"channels": 32, "width": 96, "layers": 4, "kernel": 15, "dropout": 0.1},
}


@dataclass(frozen=True, eq=False)
class StreamState:
    """What a stream remembers: the last frame before every strided convolution, and the states of the blocks."""

    before: list[Tensor]
    blocks: list[BlockState]
    ended: bool = False


class Conformer(ModelContract):
    """Frames to logits of a label or the blank at every subsampled frame."""

    forward_methods: ClassVar[tuple[str, ...]] = ("encode", "ctc_logits")

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = c = config
        self.subsample = Subsampling(c.subsampling, c.subsampling_layers, c.input_dim, c.channels, c.width)
        self.drop = nn.Dropout(c.dropout)
        self.encoder = ConformerEncoder(
            c.width,
            layers=c.layers,
            heads=c.heads,
            ffn=c.ffn,
            kernel=c.kernel,
            dropout=c.dropout,
            attention_dropout=c.attention_dropout,
            drop_path=c.drop_path,
            conv_norm=c.conv_norm,
            bias=c.bias,
            conv_bias=c.conv_bias,
            attention=c.attention,
            chunk_size=c.chunk_size,
            left_chunks=c.left_chunks,
        )
        self.head = nn.Linear(c.width, c.vocab + 1)
        self.reset()

    def forward(
        self,
        frames: Float[Tensor, "B T F"],
        frame_lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> tuple[Float[Tensor, "B N L"], Int[Tensor, " B"]]:
        """Return the logits of V labels and the blank (id V), and the number of subsampled frames of each recording."""
        x, lengths = self.encode(frames, frame_lengths, pass_state)
        return self.ctc_logits(x), lengths

    def encode(
        self,
        frames: Float[Tensor, "B T F"],
        frame_lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> tuple[Float[Tensor, "B N C"], Int[Tensor, " B"]]:
        """Return the encoded frames, zeros at padding, and their number in each recording."""
        if frame_lengths is None:
            frame_lengths = torch.full(frames.shape[:1], frames.shape[1], device=frames.device)
        x, lengths = self.subsample(frames, frame_lengths), frame_lengths
        for _ in range(self.config.subsampling_layers):
            lengths = (lengths + 1) // 2
        return self.encoder(self._scaled(x), lengths, pass_state), lengths

    def ctc_logits(self, x: Float[Tensor, "B N C"]) -> Float[Tensor, "B N L"]:
        """Return the logits of the labels and the blank at encoded frames."""
        logits: Tensor = self.head(x)
        return logits

    @property
    def blank(self) -> int:
        """Id of the blank label."""
        return self.config.vocab

    def check_length(self, frames: int) -> None:
        """Raise `BadInput` for a recording of more frames than attention over all of them has memory for."""
        c = self.config
        most = int((MAX_SCORES / (2 * c.heads)) ** 0.5) * 2**c.subsampling_layers
        if frames > most:
            raise BadInput(
                f"a recording of {frames:,} frames is too long: this model attends from every frame to every other, "
                f"{most:,} at most; cut it into parts"
            )

    def reset(self) -> None:
        """Initialise matrices by Xavier, biases by zero."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def _scaled(self, x: Tensor) -> Tensor:
        out: Tensor = self.drop(x * self.config.width**0.5 if self.config.scale_input else x)
        return out

    # -- one chunk after another ---------------------------------------------------------------------------------------

    def start_stream(self, batch: int = 1) -> StreamState:
        """Return the state before the first chunk of `batch` recordings."""
        return StreamState(self.subsample.start(batch), self.encoder.start(batch))

    def stream(self, frames: Float[Tensor, "B T F"], state: StreamState) -> tuple[Tensor, StreamState]:
        """Return the logits of one more chunk, and the new state; a chunk of fewer frames is the last."""
        whole = (self.config.chunk_size or 0) * 2**self.config.subsampling_layers
        if state.ended or not 0 < frames.shape[1] <= whole:
            why = "the recording has ended" if state.ended else f"got {frames.shape[1]} frames"
            raise BadInput(f"a chunk has {whole} frames, the last one may have fewer; {why}")
        x, before = self.subsample.step(frames, state.before)
        x, blocks = self.encoder.step(self._scaled(x), state.blocks)
        return self.ctc_logits(x), StreamState(before, blocks, frames.shape[1] < whole)


class Subsampling(nn.Module):
    """Strided convolutions, each halves the frames (rounded up); then a linear layer to the width.

    conv2d       over time and features, one channel first, as in the paper
    depthwise    the same, but all convolutions after the first are depthwise and pointwise (Fast Conformer)
    conv1d       over time alone, features as channels: for features whose order means nothing, such as cepstra

    Padding is zeroed before each, so that a recording does not depend on the others of its batch.
    """

    exact_geometry = False  # a frame is no weighted mean of those it was made of

    def __init__(self, kind: str, layers: int, input_dim: int, channels: int, width: int) -> None:
        super().__init__()
        self.planar, features = kind != "conv1d", input_dim
        make: Any = nn.Conv2d if self.planar else nn.Conv1d
        self.strided, self.pointwise = nn.ModuleList(), nn.ModuleList()
        self.frame_shapes: list[tuple[int, ...]] = []  # of one frame of the input of every convolution
        for layer in range(layers):
            inner = channels if layer else 1 if self.planar else input_dim
            self.frame_shapes.append((inner, 1, features) if self.planar else (inner, 1))
            groups = channels if kind == "depthwise" and layer else 1
            self.strided.append(make(inner, channels, KERNEL_SIZE, stride=2, padding=KERNEL_SIZE // 2, groups=groups))
            self.pointwise.append(make(channels, channels, 1) if groups > 1 else nn.Identity())
            features = (features + 1) // 2
        if layers:
            features = channels * features if self.planar else channels
        self.project = nn.Linear(features, width)

    def forward(self, frames: Float[Tensor, "B T F"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B N C"]:
        x = frames[:, None] if self.planar else frames.mT  # B 1 T F or B F T
        for conv, point in zip(self.strided, self.pointwise, strict=True):
            real = torch.arange(x.shape[2], device=x.device) < lengths[:, None]
            x = torch.relu(point(conv(x * (real[:, None, :, None] if self.planar else real[:, None]))))
            lengths = (lengths + 1) // 2
        return self._projected(x)

    def start(self, batch: int) -> list[Tensor]:
        """Return the frame before the first, of the input of every convolution: zeros."""
        return [self.project.weight.new_zeros(batch, *shape) for shape in self.frame_shapes]

    def step(self, frames: Float[Tensor, "B T F"], before: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return the subsampled frames of one more chunk, and the last frame before every convolution."""
        x, after = frames[:, None] if self.planar else frames.mT, []
        for conv, point, last in zip(self.strided, self.pointwise, before, strict=True):
            assert isinstance(conv, (nn.Conv1d, nn.Conv2d))
            wide = torch.cat([last.to(x), x], 2)
            after.append(wide[:, :, -1:])
            odd = x.shape[2] % 2
            if self.planar:
                wide = F.pad(wide, (0, 0, 0, odd))
                made = F.conv2d(wide, conv.weight, conv.bias, 2, (0, KERNEL_SIZE // 2), 1, conv.groups)
            else:
                made = F.conv1d(F.pad(wide, (0, odd)), conv.weight, conv.bias, 2, 0, 1, conv.groups)
            x = torch.relu(point(made))
        return self._projected(x), after

    def slots(self, frames: Float[Tensor, "B T F"]) -> Slots:
        """Return the frames that each subsampled one sees."""
        n, layers = frames.shape[1], len(self.strided)
        cells = receptive_fields((n,), (2 ** (layers + 1) - 1,), (2**layers,), frames.device)
        return Slots(cells[None, None], (n,))

    def _projected(self, x: Tensor) -> Float[Tensor, "B N C"]:
        out: Tensor = self.project(x.transpose(1, 2).flatten(2) if self.planar else x.mT)
        return out
