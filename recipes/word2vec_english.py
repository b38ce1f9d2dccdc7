"""Word vectors of all the English text at hand: skip-gram with negative sampling, minutes on one core.

task       skip-gram: a word predicts each word near it
data       Brown, Penn Treebank, Tatoeba's English and BBC news together: 3.9 million words, 22,102 of them known
licence    research only (BBC, Penn Treebank, Brown); what ships is trained on Tatoeba alone (word2vec_tatoeba)
paper      Mikolov et al., Distributed Representations of Words and Phrases, 2013
machine    one CPU core
expected   no published number; what a probe reads out of them: docs/how/words.md
measured   loss 11.47 on validation from 2,000 updates on; 11.5 minutes on a sixth of a core (2026-11-15)
command    regard train word2vec_english --out runs/word2vec_english
           regard near bank play --model runs/word2vec_english
"""

from regard.data.words import WordSentences
from regard.models.word2vec import Config
from regard.tasks import words
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=30_000, width=128),
        task=words.Config(window=5, negatives=5, sample=3e-4),
        data=WordSentences(("brown", "ptb", "tatoeba", "bbc"), vocabulary=30_000, least=5, tokens=8192),
        train=Train(
            steps=4000,
            device="cpu",
            rate=6e-3,
            schedule="linear",
            warmup=50,
            betas=(0.9, 0.999),
            eps=1e-8,
            evaluate=1000,
            save=2000,
            metric="loss",
        ),
    )
