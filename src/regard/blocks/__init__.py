"""Blocks: mixers, feed-forwards and norms, joined by residual connections and stacked: parts of at least two models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.core.lazy_exports import lazy_exports
from regard.core.spec import Registry

FEEDFORWARDS: Registry = {
    "relu": ("regard.blocks.feedforward", "ReluFeedForward"),
    "gelu": ("regard.blocks.feedforward", "GeluFeedForward"),
    "gelu_tanh": ("regard.blocks.feedforward", "TanhGeluFeedForward"),
    "quick_gelu": ("regard.blocks.feedforward", "QuickGeluFeedForward"),
    "silu": ("regard.blocks.feedforward", "SiluFeedForward"),
    "reglu": ("regard.blocks.feedforward", "GatedReluFeedForward"),
    "geglu": ("regard.blocks.feedforward", "GatedGeluFeedForward"),
    "geglu_tanh": ("regard.blocks.feedforward", "GatedTanhGeluFeedForward"),
    "swiglu": ("regard.blocks.feedforward", "GatedSiluFeedForward"),
    "moe": ("regard.blocks.mixture_of_experts", "MixtureOfExperts"),
}

NORMS: Registry = {
    "layer": ("regard.blocks.norms", "LayerNorm"),
    "rms": ("regard.blocks.norms", "RMSNorm"),
}

CELLS: Registry = {
    "rnn": ("regard.blocks.rnn", "RNNCell"),
    "lstm": ("regard.blocks.rnn", "LSTMCell"),
    "gru": ("regard.blocks.rnn", "GRUCell"),
}

RNN_ENCODERS: Registry = {
    "rnn": ("regard.blocks.rnn", "RNNEncoder"),
    "lstm": ("regard.blocks.rnn", "LSTMEncoder"),
    "gru": ("regard.blocks.rnn", "GRUEncoder"),
    "none": ("regard.blocks.rnn", "IdentityEncoder"),
}

# Recordings, after subsampling: the recurrent ones, and attention with convolutions.
FRAME_ENCODERS: Registry = {
    "rnn": ("regard.blocks.rnn", "RNNEncoder"),
    "lstm": ("regard.blocks.rnn", "LSTMEncoder"),
    "gru": ("regard.blocks.rnn", "GRUEncoder"),
    "conformer": ("regard.blocks.conformer", "ConformerEncoder"),
    "none": ("regard.blocks.rnn", "IdentityEncoder"),
}

# Images to tokens in their places, B C Y X -> B Y X C.
STEMS: Registry = {
    "patches": ("regard.tokens.patches", "PatchEmbedding"),
    "normed": ("regard.tokens.patches", "NormalizedPatchEmbedding"),
    "overlapping": ("regard.tokens.overlapping_patches", "OverlappingPatchEmbedding"),
    "hybrid": ("regard.blocks.hybrid", "HybridStem"),
    "convolutions": ("regard.blocks.convolution_stem", "ConvolutionStem"),
}

_MODULES = {
    "autoregressive": ("AutoregressiveModel", "EncoderDecoder"),
    "causal": ("CausalBlock", "CausalStack"),
    "conformer": ("ConformerBlock",),
    "convolution": ("CausalConvolution", "Convolution", "WeightNormLinear"),
    "decoder": ("Decoder", "DecoderBlock"),
    "decoder_state": ("CapturableDecodable", "DecoderState", "StatefulDecodable"),
    "encoder": ("Encoder", "EncoderBlock", "Stack", "build_positions"),
    "feedforward": ("FeedForward", "GatedFeedForward"),
    "mixture_of_experts": ("GroupedLinear",),
    "residual": ("DropPath", "LayerScale", "ResidualBlock"),
    "resnet_blocks": ("BasicBlock", "Bottleneck"),
    "rnn": ("InitialState", "RNNCellStack", "StackedRNN"),
    "rnn_decoder": ("DeepOutput", "RNNDecoder"),
}
if TYPE_CHECKING:
    from regard.blocks._exports import *
else:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES, FEEDFORWARDS, NORMS, CELLS, FRAME_ENCODERS)
