"""Multi30k EN-DE with a GRU and additive attention: the translator before the Transformer, on the same data.

task       translate image captions, English to German (data.target=fr; data.source=de data.target=en for DE-EN)
data       Multi30k, 29,000 pairs; lower-case, Moses-tokenised; joint BPE of 10,000
licence    research and education only: train it here, do not redistribute the model
paper      Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate. ICLR 2015
machine    one GPU, a few minutes (H200)
expected   above 28.3 BLEU DE-EN (a public tutorial's, greedy, other tokens); below the Transformer's 41.02 EN-DE
measured   EN-DE 36.9 on test_2016 (tokenised, lower-case, beam 5; H200, seed 1, 2026-11-15)
command    regard train rnnsearch_multi30k --out runs/multi30k-rnnsearch
           regard train rnnsearch_multi30k "model.encoder=gru(directions=1)" --out runs/multi30k-forwards
           regard train rnnsearch_multi30k model.encoder=none --out runs/multi30k-bare
           regard train rnnsearch_multi30k model.aligner=neural_coverage --out runs/multi30k-remembering
           regard train rnnsearch_multi30k "task.teacher_forcing=linear(steps=4000, min_probability=0.75)" --out runs/multi30k-sampling
           regard eval runs/multi30k-rnnsearch
"""  # noqa: E501

from dataclasses import replace

from _multi30k import DATA, TASK, TRAIN

from regard.models.rnnsearch import SIZES, Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=10_000, **SIZES["small"]),
        task=TASK,
        data=DATA,
        train=replace(TRAIN, compile=False),  # the decoder is a loop over time: compiling it gains little
    )
