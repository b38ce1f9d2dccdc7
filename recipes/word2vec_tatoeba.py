"""Vectors of everyday English words, trained in a minute on one core: the model that ships as words-en.

task       skip-gram with negative sampling
data       Tatoeba: the English side of its English-French and English-German pairs
licence    CC BY 2.0 (tatoeba.org, www.manythings.org/anki): what is trained on it may be passed on
paper      Mikolov et al., Distributed Representations of Words and Phrases, 2013
machine    one CPU core
expected   neighbours that mean something for frequent words; the loss compares runs of these settings only
measured   loss 6.783 on validation, 3.4 minutes on one core of a busy machine (2026-11-15)
command    regard train word2vec_tatoeba --out runs/words
"""

from dataclasses import replace

from _word2vec import DATA, TASK, TRAIN

from regard.models.word2vec import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=9200, width=128),
        task=replace(TASK, window=4, subsample=1e-3),
        data=replace(DATA, corpora=("tatoeba",), vocab_size=16_000, min_count=3, batch_tokens=4096),
        train=replace(TRAIN, learning_rate=5e-3, save_dtype="float16"),
    )
