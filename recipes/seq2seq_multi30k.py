"""Multi30k EN-DE through one vector: the encoder-decoder without attention, the baseline of all that look back.

task       translate image captions, English to German (data.source=de data.target=en for DE-EN)
data       Multi30k, 29,000 pairs; lower-case, Moses-tokenised; joint BPE of 10,000
licence    research and education only: train it here, do not redistribute the model
paper      Cho et al.: Learning Phrase Representations using RNN Encoder-Decoder. EMNLP 2014 (Sutskever et al. 2014:
           model.context=initial_state model.cell=lstm "model.encoder=lstm")
machine    one GPU, a few minutes (H200)
expected   clearly below rnnsearch_multi30k of the same size, and falling with the length of the source
measured   DE-EN 32.6 on test_2016 with a reader of 256 (tokenised, lower-case, beam 5; H200),
           EN-DE 26.9 (the same, greedy)
command    regard train seq2seq_multi30k --out runs/multi30k-seq2seq
           regard eval runs/multi30k-seq2seq
"""

from dataclasses import replace

from _multi30k import DATA, TASK, TRAIN

from regard.models.seq2seq import SIZES, Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=10_000, **SIZES["small"]),
        task=TASK,
        data=DATA,
        train=replace(TRAIN, compile=False),  # nothing is left to fuse between the networks and the products
    )
