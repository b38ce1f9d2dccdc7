"""Weights: other people's checkpoints in and out as tables of rows, and the folder a model of ours is saved in.

| file | what |
|---|---|
| table | rows, operations, `read` and `write` |
| folder | safetensors, config.json, tokenizer.json and a card, written all or nothing |
| bert, gpt2, marian, t5, torch_transformer | one peer each |
| timm_mvitv2, torchvision_mvit | images and clips |
"""

from __future__ import annotations

from regard.core.spec import Table

# Each is a function: our Config -> rows.
TABLES: Table = {
    "bert": ("regard.weights.bert", "table"),
    "gpt2": ("regard.weights.gpt2", "table"),
    "marian": ("regard.weights.marian", "table"),
    "t5": ("regard.weights.t5", "table"),
    "timm_resnet": ("regard.weights.timm_resnet", "table"),
    "vit_pytorch_cct": ("regard.weights.vit_pytorch_cct", "table"),
    "torch_transformer": ("regard.weights.torch_transformer", "table"),
    "timm_mvitv2": ("regard.weights.timm_mvitv2", "table"),
    "torchvision_mvit": ("regard.weights.torchvision_mvit", "table"),
}
