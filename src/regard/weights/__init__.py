"""Weights: other people's checkpoints in and out as tables of rows, and the folder a model of ours is saved in.

| file | what |
|---|---|
| table | rows, operations, `read` and `write` |
| folder | safetensors, config.json, tokenizer.json and a card, written all or nothing |
| theirs | what folders of transformers and timm have in common |
| bert, gpt2, marian, t5, torch_transformer | one peer each |
| timm_vit, timm_deit, hf_vit, hf_deit, google_vit, vit_pytorch | ViT and DeiT as four others name them |
| timm_hybrid | a ResNet before a ViT |
| timm_swin, timm_swinv2, hf_swin, hf_swinv2 | Swin and Swin v2 of timm and of transformers |
| timm_mvitv2, torchvision_mvit | MViT of images and of clips |
| timm_resnet, vit_pytorch_cct | what ViT is measured against, and what is smaller |
"""

from __future__ import annotations

from regard.core.spec import Registry

# Each is a function: our Config -> rows.
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
    "timm_mvitv2": ("regard.weights.timm.mvitv2", "table"),
    "torchvision_mvit": ("regard.weights.other.torchvision_mvit", "table"),
    "timm_resnet": ("regard.weights.timm.resnet", "table"),
    "vit_pytorch_cct": ("regard.weights.other.vit_pytorch_cct", "table"),
}
