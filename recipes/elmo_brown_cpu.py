"""A small ELMo on one core in some ten minutes: two language models of the Brown corpus, words by their letters.

task       predict each word from what stands before it, and from what stands after it
data       Brown: 45,829 sentences of American prose of 1961, 929,285 words, the 4,000 most frequent ones predicted
licence    "may be used for non-commercial purposes"
paper      Peters et al., Deep Contextualized Word Representations, 2018
machine    one CPU core
expected   nobody has published this split and size; the probe is what it is for (docs/how/word-vectors.md)
measured   perplexity 74.0 on validation (75.8 forwards, 72.2 backwards), 36 minutes of a busy machine (2026-11-15)
command    regard train elmo_brown_cpu --out runs/elmo
"""

from regard.data.text.word_sentences import WordSentences
from regard.models.elmo import Config
from regard.tasks.text import bidirectional_lm
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(
            vocab=4000,
            width=128,
            hidden=128,
            filters=(16, 16, 32, 64, 64),
            highway_layers=1,
            max_word_length=24,
            dropout=0.1,
        ),
        task=bidirectional_lm.Config(eval_examples=600),
        data=WordSentences(("brown",), vocab_size=4000, min_count=5, lowercase=False, batch_tokens=1024, max_length=64),
        train=Train(
            steps=1500,  # an epoch and a half
            device="cpu",
            learning_rate=3e-3,
            schedule="cosine",
            warmup_steps=100,
            min_learning_rate_ratio=0.05,
            betas=(0.9, 0.98),
            clip_grad_norm=1.0,
            eval_interval=500,
            save_interval=500,
            metric="loss",
            save_dtype="float16",
        ),
    )
