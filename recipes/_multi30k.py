"""What the Multi30k recipes share: lower-case Moses tokens, a joint BPE of 10,000, beam 5."""

from regard.data.text.parallel_corpus import ParallelCorpus
from regard.tasks.text import translation
from regard.training.recipe import Train

DATA = ParallelCorpus("multi30k", "en", "de", style="moses", tokenizer="bpe", vocab_size=10_000, batch_tokens=8192)
TASK = translation.Config(label_smoothing=0.1, beam_size=5, length_penalty=1.0)
TRAIN = Train(
    steps=5000,
    learning_rate=1e-3,
    schedule="inverse_sqrt",
    warmup_steps=1000,
    clip_grad_norm=1.0,
    average_checkpoints=5,
    score_interval=5,
    metric="loss",
    patience=20,
)
