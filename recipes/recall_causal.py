"""Associative recall with a small GPT: the value that stood beside a key, up to 500 tokens before.

task       predict symbols at marked places of a row of 512
data       generated (data.synthetic.symbols): 32 pairs of 64 keys and 64 values, then every key once more
licence    nothing but numbers
paper      Arora et al., Zoology, 2023, arXiv:2312.04927 (multi-query associative recall)
machine    one GPU; 0.9 million parameters
expected   solved by softmax attention after enough updates (Zoology); 1 of 64 by guessing. A GPT of two layers of 128
           solves 8 pairs of 16 keys in 48 tokens in 225 updates of 64 rows (docs/notes/2026-11-18.md)
measured   not yet: waits for a GPU (docs/variants.md)
command    regard train recall_causal --out runs/recall_causal
           regard train recall_causal "model.attention=linear" --out runs/recall_causal-linear
"""

from dataclasses import replace

from _long_range import DECODER, TRAIN

from regard.data.synthetic.symbols import AssociativeRecall
from regard.tasks.text import symbol_prediction
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=replace(DECODER, length=512),
        task=symbol_prediction.Config(),
        data=AssociativeRecall(context_length=512, pairs=32, symbols=128, batch_size=32),
        train=replace(TRAIN, steps=8000),
    )
