"""Weights: other people's checkpoints in and out as tables of rows, and the folder a model of ours is saved in.

| file | what |
|---|---|
| table | rows, operations, `read` and `write` |
| folder | safetensors, config.json, tokenizer.json and a card, written all or nothing |
| timm_swin, timm_swinv2, hf_swin, hf_swinv2 | Swin and Swin v2 of timm and of transformers |
| bert, gpt2, marian, t5, torch_transformer | one peer each |
"""

from __future__ import annotations

from regard.core.spec import Table

# Each is a function: our Config -> rows.
TABLES: Table = {
    "bert": ("regard.weights.bert", "table"),
    "gpt2": ("regard.weights.gpt2", "table"),
    "marian": ("regard.weights.marian", "table"),
    "t5": ("regard.weights.t5", "table"),
    "timm_swin": ("regard.weights.timm_swin", "table"),
    "timm_swinv2": ("regard.weights.timm_swinv2", "table"),
    "hf_swin": ("regard.weights.hf_swin", "table"),
    "hf_swinv2": ("regard.weights.hf_swinv2", "table"),
    "torch_transformer": ("regard.weights.torch_transformer", "table"),
}
