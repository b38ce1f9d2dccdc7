"""Multi30k EN-DE with attention after the state: Luong's translator, with input feeding.

task       translate image captions, English to German (data.source=de data.target=en for DE-EN)
data       Multi30k, 29,000 pairs; lower-case, Moses-tokenised; joint BPE of 10,000
licence    research and education only: train it here, do not redistribute the model
paper      Luong, Pham, Manning: Effective Approaches to Attention-based Neural Machine Translation. EMNLP 2015
machine    one GPU, a few minutes (H200)
expected   about rnnsearch_multi30k's
measured   DE-EN 42.0 on test_2016 with a reader of 256 (tokenised, lower-case, beam 5; H200),
           EN-DE 36.7 (the same, greedy)
command    regard train luong_multi30k --out runs/multi30k-luong
           regard train luong_multi30k model.decoder=no_input_feeding --out runs/multi30k-luong-free
           regard train luong_multi30k "model.aligner=local_predictive(window=10)" --out runs/multi30k-luong-local
           regard train luong_multi30k model.aligner=dot "model.encoder=gru(hidden=256)" --out runs/multi30k-luong-dot
           regard eval runs/multi30k-luong

Global scores are dot, scaled_dot (for both the reader gives as many numbers as the state has), bilinear, concat and
additive; local ones local_monotonic and local_predictive.
"""

from dataclasses import replace

from _multi30k import DATA, TASK, TRAIN

from regard.models.luong import SIZES, Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=10_000, **SIZES["small"]),
        task=TASK,
        data=DATA,
        train=replace(
            TRAIN, compile=False
        ),  # with input feeding the decoder is a loop over time: compiling it gains little
    )
