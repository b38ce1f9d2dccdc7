"""Weights: the folder format of saved models, and checkpoints of other libraries, imported and exported by tables.

| file | what |
|---|---|
| folder | safetensors, config.json, tokenizer.json and a card, written atomically |
| int8 | weights stored in 8 bits |
| table | rows and operations; `import_state_dict`, `export_state_dict` |
| checkpoint_formats | shared by folders of transformers and timm |
| hf | bert, gpt2, t5, marian, decision_transformer, vit, deit, swin, swinv2, dpt, detr, sentence_transformers |
| timm | vit, deit, vit_hybrid, swin, swinv2, mvitv2, resnet |
| other | torch_transformer, google_vit, vit_pytorch, vit_pytorch_cct, torchvision_mvit, detr, efficientnet_lite |
"""

from __future__ import annotations

from regard.core.lazy_exports import public_dir
from regard.core.spec import Registry

# Functions from a Config to rows.
TABLES: Registry = {
    "hf_bert": ("regard.weights.hf.bert", "table"),
    "hf_gpt2": ("regard.weights.hf.gpt2", "table"),
    "hf_marian": ("regard.weights.hf.marian", "table"),
    "hf_t5": ("regard.weights.hf.t5", "table"),
    "torch_transformer": ("regard.weights.other.torch_transformer", "table"),
    "timm_vit": ("regard.weights.timm.vit", "table"),
    "timm_deit": ("regard.weights.timm.deit", "table"),
    "hf_vit": ("regard.weights.hf.vit", "table"),
    "hf_deit": ("regard.weights.hf.deit", "table"),
    "google_vit": ("regard.weights.other.google_vit", "table"),
    "vit_pytorch": ("regard.weights.other.vit_pytorch", "table"),
    "timm_vit_hybrid": ("regard.weights.timm.vit_hybrid", "table"),
    "timm_swin": ("regard.weights.timm.swin", "table"),
    "timm_swinv2": ("regard.weights.timm.swinv2", "table"),
    "hf_swin": ("regard.weights.hf.swin", "table"),
    "hf_swinv2": ("regard.weights.hf.swinv2", "table"),
    "hf_dpt": ("regard.weights.hf.dpt", "table"),
    "hf_detr": ("regard.weights.hf.detr", "table"),
    "original_detr": ("regard.weights.other.detr", "table"),
    "timm_mvitv2": ("regard.weights.timm.mvitv2", "table"),
    "torchvision_mvit": ("regard.weights.other.torchvision_mvit", "table"),
    "efficientnet_lite": ("regard.weights.other.efficientnet_lite", "table"),
    "timm_resnet": ("regard.weights.timm.resnet", "table"),
    "vit_pytorch_cct": ("regard.weights.other.vit_pytorch_cct", "table"),
}


__dir__ = public_dir(__name__)
