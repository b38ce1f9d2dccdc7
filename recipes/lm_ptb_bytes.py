"""The Penn Treebank byte by byte, 1,024 at a time, with any causal attention by name.

task       predict the next byte
data       ptb, bytes: 5.1 million to train on, 0.4 million to validate, 0.45 million to test
licence    not stated; nothing trained on it ships
paper      Radford et al., Language Models are Unsupervised Multitask Learners, 2019 (a decoder alone)
machine    one GPU; 0.9 million parameters
expected   nothing published at this size
measured   not yet: waits for a GPU (docs/variants.md)
command    regard train lm_ptb_bytes --out runs/lm_ptb_bytes
           regard train lm_ptb_bytes "model.attention=linear" --out runs/lm_ptb_bytes-linear
           regard eval runs/lm_ptb_bytes
"""

from dataclasses import replace

from _long_range import DECODER, TRAIN

from regard.data.text.text_file import TextFile
from regard.tasks.text import language_modeling
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=DECODER,
        task=language_modeling.Config(eval_examples=64),
        data=TextFile("ptb", context_length=1024, batch_size=16, tokenizer="bytes", vocab_size=260),
        train=replace(TRAIN, metric="loss"),
    )
