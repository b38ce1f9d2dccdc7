"""Models: one paper per file. The table of contents."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import nn

from regard.core.config import from_dict, missing
from regard.core.errors import RegardError, UnknownName, nearest
from regard.core.spec import Table, resolve

MODELS: Table = {
    "transformer": ("regard.models.transformer", "Transformer"),
    "gpt": ("regard.models.gpt", "GPT"),
    "t5": ("regard.models.t5", "T5"),
    "bert": ("regard.models.bert", "BERT"),
    "seq2seq": ("regard.models.seq2seq", "Seq2Seq"),
    "rnnsearch": ("regard.models.rnnsearch", "RNNSearch"),
    "convs2s": ("regard.models.convs2s", "ConvS2S"),
    "bytenet": ("regard.models.bytenet", "ByteNet"),
    "neural_gpu": ("regard.models.neural_gpu", "NeuralGPU"),
    "luong": ("regard.models.luong", "Luong"),
    "online": ("regard.models.online", "Online"),
    "road": ("regard.models.road", "Road"),
    "decision": ("regard.models.decision", "DecisionTransformer"),
    "elmo": ("regard.models.elmo", "ELMo"),
    "word2vec": ("regard.models.word2vec", "Word2Vec"),
    "handwriting": ("regard.models.handwriting", "Handwriting"),
    "ctc": ("regard.models.ctc", "CTC"),
    "listener": ("regard.models.listener", "Listener"),
    "resnet": ("regard.models.resnet", "ResNet"),
    "cct": ("regard.models.cct", "CCT"),
    "vit": ("regard.models.vit", "ViT"),
    "deit": ("regard.models.deit", "DeiT"),
    "swin": ("regard.models.swin", "Swin"),
    "swinv2": ("regard.models.swinv2", "SwinV2"),
    "mvit": ("regard.models.mvit", "MViT"),
}


def build(name: str, size: str | None = None, **settings: Any) -> nn.Module:
    """A model by name: ``build("transformer", size="base", vocab=8000, attention="softmax")``.

    `settings` are fields of the model's Config and override those of the size.
    """
    model = resolve(MODELS, name, "model")
    room = import_module(MODELS[name][0])
    if size is not None and (not isinstance(size, str) or size not in room.SIZES):
        raise UnknownName(f"{name} has no size '{size}'; {nearest(size, room.SIZES)}")
    chosen = dict(room.SIZES[size]) if size is not None else {}
    try:
        config = from_dict(room.Config, chosen | settings)
    except TypeError as error:  # a field without a default was not given
        raise RegardError(f"{name} needs more settings: {missing(error)}") from None
    built: nn.Module = model(config)
    return built
