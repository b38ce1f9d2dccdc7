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

from regard.data.text.word_sentences import WordSentences
from regard.models.word2vec import Config
from regard.tasks.text import word2vec
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=30_000, width=128),
        task=word2vec.Config(window=5, negatives=5, subsample=3e-4),
        data=WordSentences(("brown", "ptb", "tatoeba", "bbc"), vocab_size=30_000, min_count=5, batch_tokens=8192),
        train=Train(
            steps=4000,
            device="cpu",
            learning_rate=6e-3,
            schedule="linear",
            warmup_steps=50,
            betas=(0.9, 0.999),
            eps=1e-8,
            eval_interval=1000,
            save_interval=2000,
            metric="loss",
        ),
    )
