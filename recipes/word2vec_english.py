"""Word vectors of all the English text available: skip-gram with negative sampling, minutes on one core.

task       skip-gram: a word predicts each word near it
data       Brown, Penn Treebank, Tatoeba's English and BBC news together: 3.9 million words, 22,102 of them known
licence    research only (BBC, Penn Treebank, Brown); what ships is trained on Tatoeba alone (word2vec_tatoeba)
paper      Mikolov et al., Distributed Representations of Words and Phrases, 2013
machine    one CPU core
expected   no published number; what a probe reads out of them: docs/how/word-vectors.md
measured   loss 11.47 on validation from 2,000 updates on; 11.5 minutes on a sixth of a core (2026-11-15)
command    regard train word2vec_english --out runs/word2vec_english
           regard near bank play --model runs/word2vec_english
"""

from _word2vec import DATA, TASK, TRAIN

from regard.models.word2vec import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(model=Config(vocab=30_000, width=128), task=TASK, data=DATA, train=TRAIN)
