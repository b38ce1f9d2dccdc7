"""Shakespeare character by character, 1,024 at a time, with any causal attention by name.

task       predict the next character
data       tinyshakespeare, characters: 1.0 million to train on, 0.11 million to validate
licence    the text is in the public domain
paper      Radford et al., Language Models are Unsupervised Multitask Learners, 2019 (a decoder alone)
machine    one GPU; 0.9 million parameters
expected   nothing published at this size
measured   not yet: waits for a GPU (docs/variants.md)
command    regard train lm_shakespeare_long --out runs/lm_shakespeare_long
           regard train lm_shakespeare_long "model.attention=linear" --out runs/lm_shakespeare_long-linear
           regard eval runs/lm_shakespeare_long --split val
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
        data=TextFile("tinyshakespeare", context_length=1024, batch_size=16, tokenizer="char"),
        train=replace(TRAIN, metric="loss"),
    )
