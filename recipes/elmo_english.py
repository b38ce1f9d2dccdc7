"""ELMo of all the English text available, minutes on a GPU: two language models, words by their letters.

task       predict each word from what stands before it, and from what stands after it
data       Brown, Penn Treebank, Tatoeba's English and BBC news together: 4.1 million words, 20,000 of them predicted
licence    research only (BBC, Penn Treebank, Brown)
paper      Peters et al., Deep Contextualized Word Representations, 2018
machine    one GPU
expected   no published number for these texts; the probe is what it is for (docs/how/word-vectors.md)
measured   perplexity 87.3 a word on test, both directions (H200, 2026-11-15); its first layer tells nouns from verbs
           in 95.0 % of the places, word2vec in 64.7 % (benchmarks/linear_probe.py)
command    regard train elmo_english --out runs/elmo
           python benchmarks/linear_probe.py --static words-en --elmo runs/elmo/model
"""

from regard.data.text.word_sentences import WordSentences
from regard.models.elmo import Config
from regard.tasks.text import bidirectional_lm
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=20_000, width=256, hidden=1024, highway_layers=1, dropout=0.2),
        task=bidirectional_lm.Config(eval_examples=2000),
        data=WordSentences(
            ("brown", "ptb", "tatoeba", "bbc"),
            vocab_size=20_000,
            min_count=3,
            lowercase=False,
            batch_tokens=8192,
            max_length=64,
        ),
        train=Train(
            steps=6000,
            compile=False,  # no two batches have one shape, and the networks are one kernel already
            learning_rate=2e-3,
            schedule="cosine",
            warmup_steps=300,
            min_learning_rate_ratio=0.02,
            betas=(0.9, 0.98),
            weight_decay=0.01,
            clip_grad_norm=1.0,
            eval_interval=1000,
            save_interval=2000,
            metric="loss",
        ),
    )
