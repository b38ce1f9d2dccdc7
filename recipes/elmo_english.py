"""ELMo of all the English text at hand, minutes on a GPU: two language models, words by their letters.

task       predict each word from what stands before it, and from what stands after it
data       Brown, Penn Treebank, Tatoeba's English and BBC news together: 4.1 million words, 20,000 of them predicted
licence    research only (BBC, Penn Treebank, Brown)
paper      Peters et al., Deep Contextualized Word Representations, 2018
machine    one GPU
expected   no published number for these texts; the probe is what it is for (docs/how/words.md)
measured   perplexity 87.3 a word on test, both directions (H200, 2026-11-15); its first layer tells nouns from verbs
           in 95.0 % of the places, word2vec in 64.7 % (benchmarks/probe.py)
command    regard train elmo_english --out runs/elmo
           python benchmarks/probe.py --static words-en --elmo runs/elmo/model
"""

from regard.data.words import WordSentences
from regard.models.elmo import Config
from regard.tasks import bilm
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=20_000, width=256, hidden=1024, highways=1, dropout=0.2),
        task=bilm.Config(looks=2000),
        data=WordSentences(
            ("brown", "ptb", "tatoeba", "bbc"), vocabulary=20_000, least=3, lower=False, tokens=8192, longest=64
        ),
        train=Train(
            steps=6000,
            compile=False,  # no two batches have one shape, and the networks are one kernel already
            rate=2e-3,
            schedule="cosine",
            warmup=300,
            floor=0.02,
            betas=(0.9, 0.98),
            decay=0.01,
            clip=1.0,
            evaluate=1000,
            save=2000,
            metric="loss",
        ),
    )
