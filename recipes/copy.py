"""Copying with a small encoder: 255 symbols, each 256 tokens later.

task       fill the blanks of a row of 512 symbols
data       generated (data.synthetic.symbols): 255 symbols of 128 kinds, then as many blanks
licence    nothing but numbers
paper      Katharopoulos et al., Transformers are RNNs, ICML 2020, arXiv:2006.16236 (section 4.1 copies 128 symbols)
machine    one GPU; 0.9 million parameters
expected   nearly all blanks for softmax attention; 1 of 128 by guessing. 16 symbols are solved in 250 updates
measured   not yet at this size: docs/variants.md has 16 symbols on a CPU
command    regard train copy --out runs/copy
           regard train copy "model.attention=linear" --out runs/copy-linear
"""

from dataclasses import replace

from _long_range import ENCODER, TRAIN

from regard.data.synthetic.symbols import Copying
from regard.tasks.text import symbol_prediction
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=replace(ENCODER, length=512),
        task=symbol_prediction.Config(),
        data=Copying(context_length=512, symbols=128, batch_size=32),
        train=replace(TRAIN, steps=8000),
    )
