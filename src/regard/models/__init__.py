"""Models, one paper per file: ``from regard.models import ViT, GPT``; ``regard.build("vit", size="base")``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch import nn

from regard.core.config import from_dict, missing_fields
from regard.core.errors import RegardError, UnknownName, did_you_mean
from regard.core.lazy_exports import lazy_exports
from regard.core.spec import Registry, config_class, resolve

MODELS: Registry = {
    "transformer": ("regard.models.transformer", "Transformer"),
    "gpt": ("regard.models.gpt", "GPT"),
    "t5": ("regard.models.t5", "T5"),
    "bert": ("regard.models.bert", "BERT"),
    "star_transformer": ("regard.models.star_transformer", "StarTransformer"),
    "bp_transformer": ("regard.models.bp_transformer", "BPTransformer"),
    "sac": ("regard.models.sac", "SAC"),
    "set_transformer": ("regard.models.set_transformer", "SetTransformer"),
    "deep_sets": ("regard.models.deep_sets", "DeepSets"),
    "point_transformer": ("regard.models.point_transformer", "PointTransformer"),
    "pointnet": ("regard.models.pointnet", "PointNet"),
    "graph_transformer": ("regard.models.graph_transformer", "GraphTransformer"),
    "gcn": ("regard.models.gcn", "GCN"),
    "gat": ("regard.models.gat", "GAT"),
    "siren": ("regard.models.siren", "SIREN"),
    "memnn": ("regard.models.memnn", "MemNN"),
    "memn2n": ("regard.models.memn2n", "MemN2N"),
    "dmn": ("regard.models.dmn", "DMN"),
    "story_dnc": ("regard.models.story_dnc", "StoryDNC"),
    "story_bert": ("regard.models.story_bert", "StoryBERT"),
    "seq2seq": ("regard.models.seq2seq", "Seq2Seq"),
    "rnnsearch": ("regard.models.rnnsearch", "RNNSearch"),
    "convs2s": ("regard.models.convs2s", "ConvS2S"),
    "bytenet": ("regard.models.bytenet", "ByteNet"),
    "neural_gpu": ("regard.models.neural_gpu", "NeuralGPU"),
    "ntm": ("regard.models.ntm", "NTM"),
    "dnc": ("regard.models.dnc", "DNC"),
    "lstm": ("regard.models.lstm", "LSTM"),
    "luong": ("regard.models.luong", "Luong"),
    "online_alignment": ("regard.models.online_alignment", "OnlineAlignment"),
    "gru_to_attention": ("regard.models.gru_to_attention", "GRUToAttention"),
    "decision_transformer": ("regard.models.decision_transformer", "DecisionTransformer"),
    "elmo": ("regard.models.elmo", "ELMo"),
    "word2vec": ("regard.models.word2vec", "Word2Vec"),
    "handwriting": ("regard.models.handwriting", "Handwriting"),
    "ctc": ("regard.models.ctc", "CTC"),
    "attention_asr": ("regard.models.attention_asr", "AttentionASR"),
    "conformer": ("regard.models.conformer", "Conformer"),
    "hybrid_asr": ("regard.models.hybrid_asr", "HybridASR"),
    "image_transformer": ("regard.models.image_transformer", "ImageTransformer"),
    "image_gpt": ("regard.models.image_gpt", "ImageGPT"),
    "vqa_transformer": ("regard.models.vqa_transformer", "VQATransformer"),
    "draw": ("regard.models.draw", "DRAW"),
    "detr": ("regard.models.detr", "DETR"),
    "deformable_detr": ("regard.models.deformable_detr", "DeformableDETR"),
    "resnet": ("regard.models.resnet", "ResNet"),
    "lr_net": ("regard.models.lr_net", "LRNet"),
    "learn_to_pay_attention": ("regard.models.learn_to_pay_attention", "LearnToPayAttention"),
    "efficientnet_lite": ("regard.models.efficientnet_lite", "EfficientNetLite"),
    "show_and_tell": ("regard.models.show_and_tell", "ShowAndTell"),
    "show_attend_and_tell": ("regard.models.show_attend_and_tell", "ShowAttendAndTell"),
    "caption_transformer": ("regard.models.caption_transformer", "CaptionTransformer"),
    "ram": ("regard.models.ram", "RAM"),
    "cct": ("regard.models.cct", "CCT"),
    "vit": ("regard.models.vit", "ViT"),
    "deit": ("regard.models.deit", "DeiT"),
    "swin": ("regard.models.swin", "Swin"),
    "swinv2": ("regard.models.swinv2", "SwinV2"),
    "mvit": ("regard.models.mvit", "MViT"),
    "unet": ("regard.models.unet", "UNet"),
    "segmenter": ("regard.models.segmenter", "Segmenter"),
    "dpt": ("regard.models.dpt", "DPT"),
    "swin_pyramid": ("regard.models.swin_pyramid", "SwinPyramid"),
}


def build(name: str, size: str | None = None, **settings: Any) -> nn.Module:
    """Build a model by name: ``build("transformer", size="base", vocab=8000, attention="softmax")``.

    `settings` are fields of the model's Config and override those of the size.
    """
    model = resolve(MODELS, name, "model")
    sizes = getattr(import_module(MODELS[name][0]), "SIZES", {})
    if size is not None and (not isinstance(size, str) or size not in sizes):
        raise UnknownName(f"{name} has no size '{size}'; {did_you_mean(size, sizes)}")
    chosen = dict(sizes[size]) if size is not None else {}
    try:
        config: Any = from_dict(config_class(MODELS, name, "model"), chosen | settings)
    except TypeError as error:  # a field without a default is missing
        raise RegardError(f"{name} needs more settings: {missing_fields(error)}") from None
    built: nn.Module = model(config)
    return built


if TYPE_CHECKING:
    from regard.models._exports import *
else:
    __getattr__, __dir__ = lazy_exports(__name__, {"contract": ("DenseModel", "ImageModel", "ModelContract")}, MODELS)
