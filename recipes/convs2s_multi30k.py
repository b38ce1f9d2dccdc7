"""Multi30k DE-EN with ConvS2S: gated convolutions, and a look at the source in every layer of the decoder.

task       translate image captions, German to English (data.source=en data.target=de for the other way)
data       Multi30k, 29,000 pairs; lower-case, Moses-tokenised; joint BPE of 10,000
licence    research and education only: train it here, do not redistribute the model
paper      Gehring et al.: Convolutional Sequence to Sequence Learning. ICML 2017. arXiv:1705.03122
machine    one GPU, a few minutes (H200)
expected   above 34.1 BLEU DE-EN on test_2016 (a public tutorial's: greedy, lower-case, words as tokens)
measured   DE-EN 43.8 on test_2016 with 6.1 million parameters (tokenised, lower-case, beam 5; H200),
           EN-DE 38.7 (the same, greedy)
command    regard train convs2s_multi30k --out runs/multi30k-convs2s
           regard eval runs/multi30k-convs2s
"""

from dataclasses import replace

from _multi30k import DATA, TASK, TRAIN

from regard.models.convs2s import SIZES, Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=10_000, length=256, **SIZES["small"]),
        task=TASK,
        data=replace(DATA, source="de", target="en"),
        train=replace(TRAIN, steps=6000, clip_grad_norm=0.5),
    )
