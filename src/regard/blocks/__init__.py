"""Blocks: mixers, feed-forwards and norms, joined by residual paths and stacked; and heads, what is asked of them."""

from __future__ import annotations

from regard.core.spec import Table

FEEDFORWARDS: Table = {
    "relu": ("regard.blocks.feedforward", "ReluFeedForward"),
    "gelu": ("regard.blocks.feedforward", "GeluFeedForward"),
    "gelu_tanh": ("regard.blocks.feedforward", "TanhGeluFeedForward"),
    "silu": ("regard.blocks.feedforward", "SiluFeedForward"),
    "reglu": ("regard.blocks.feedforward", "GatedReluFeedForward"),
    "geglu": ("regard.blocks.feedforward", "GatedGeluFeedForward"),
    "geglu_tanh": ("regard.blocks.feedforward", "GatedTanhGeluFeedForward"),
    "swiglu": ("regard.blocks.feedforward", "GatedSiluFeedForward"),
    "experts": ("regard.blocks.experts", "Experts"),
}

NORMS: Table = {
    "layer": ("torch.nn", "LayerNorm"),
    "rms": ("regard.blocks.norms", "RMSNorm"),
}

CONVOLUTIONS: Table = {
    "relu": ("regard.blocks.convolution", "ReluBlock"),
    "multiplicative": ("regard.blocks.convolution", "MultiplicativeBlock"),
}

HEADS: Table = {
    "pretraining": ("regard.blocks.heads", "PretrainingHead"),
    "masked": ("regard.blocks.heads", "WordsHead"),
    "classes": ("regard.blocks.heads", "ClassesHead"),
    "tags": ("regard.blocks.heads", "TagsHead"),
    "span": ("regard.blocks.heads", "SpanHead"),
}

CELLS: Table = {
    "rnn": ("regard.blocks.recurrent", "RNNCell"),
    "lstm": ("regard.blocks.recurrent", "LSTMCell"),
    "gru": ("regard.blocks.recurrent", "GRUCell"),
}

READERS: Table = {
    "rnn": ("regard.blocks.recurrent", "RNNReader"),
    "lstm": ("regard.blocks.recurrent", "LSTMReader"),
    "gru": ("regard.blocks.recurrent", "GRUReader"),
    "none": ("regard.blocks.recurrent", "NoReader"),
}

POOLINGS: Table = {
    "conv": ("regard.blocks.pooled", "ConvPooling"),
    "mean": ("regard.blocks.pooled", "MeanPooling"),
}
