"""TREC: what kind of answer does a question want? A BP-Transformer from scratch.

    task       classify questions into six kinds: abbreviation, description, entity, human, location, number
    data       TREC-6: 4,906 to train on, 546 of the training split for validation, 500 to test
    licence    not stated (research); the model is not shipped
    paper      Ye et al., BP-Transformer, 2019
    machine    a CPU core, shared with other programs: 25 minutes
    expected   about what bert_trec reaches from scratch (83.5 %)
    measured   79.6 % on test (one seed, one CPU core, 2026-11-18): less than expected
    command    regard train bp_trec --out runs/bp-trec
               regard train bp_trec data.corpus=sst2 --out runs/bp-sst2
               regard eval runs/bp-trec

No word vectors are given (the authors begin with GloVe); the vocabulary is that of the training split.
"""

from dataclasses import replace

from _text_encoders import DATA, TRAIN

from regard.models.bp_transformer import Config
from regard.tasks.text import classification
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=8000, width=128, heads=4, layers=3, ffn=256, length=128, dropout=0.3, attention_dropout=0.1),
        task=classification.Config(),
        data=DATA,
        train=replace(TRAIN, learning_rate=5e-4),
    )
