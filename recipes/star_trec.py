"""TREC: what kind of answer does a question want? A Star-Transformer from scratch.

    task       classify questions into six kinds: abbreviation, description, entity, human, location, number
    data       TREC-6: 4,906 to train on, 546 of the training split for validation, 500 to test
    licence    not stated (research); the model is not shipped
    paper      Guo et al., Star-Transformer, NAACL 2019
    machine    a CPU core, about six minutes
    expected   about what bert_trec reaches from scratch (83.5 %), with attention that is linear in the length
    measured   84.6 % on test, and 79.5 % on SST-2's (one seed each, one CPU core, 2026-11-18)
    command    regard train star_trec --out runs/star-trec
               regard train star_trec data.corpus=sst2 --out runs/star-sst2
               regard eval runs/star-trec

No word vectors are given; the vocabulary is that of the training split.
"""

from dataclasses import replace

from _text_encoders import DATA, TRAIN

from regard.models.star_transformer import Config
from regard.tasks.text import classification
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=8000, width=128, heads=4, layers=2, length=128, dropout=0.3),
        task=classification.Config(),
        data=DATA,
        train=replace(TRAIN, learning_rate=1e-3),
    )
