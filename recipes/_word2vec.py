"""What the word2vec recipes share."""

from regard.data.text.word_sentences import WordSentences
from regard.tasks.text import word2vec
from regard.training.recipe import Train

DATA = WordSentences(("brown", "ptb", "tatoeba", "bbc"), vocab_size=30_000, min_count=5, batch_tokens=8192)
TASK = word2vec.Config(window=5, negatives=5, subsample=3e-4)
TRAIN = Train(
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
)
