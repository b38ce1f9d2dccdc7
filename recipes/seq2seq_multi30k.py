"""Multi30k EN-DE through one vector: the encoder-decoder without attention, the baseline of all that look back.

task       translate image captions, English to German (data.source=de data.target=en for DE-EN)
data       Multi30k, 29,000 pairs; lower-case, Moses-tokenised; joint BPE of 10,000
licence    research and education only: train it here, do not redistribute the model
paper      Cho et al.: Learning Phrase Representations using RNN Encoder-Decoder. EMNLP 2014 (Sutskever et al. 2014:
           model.context=initial_state model.cell=lstm "model.encoder=lstm")
machine    one GPU, a few minutes (H200)
expected   clearly below rnnsearch_multi30k of the same size, and falling with the length of the source
measured   DE-EN 32.6 on test_2016 with a reader of 256 (tokenised, lower-case, beam 5; H200),
           EN-DE 26.9 (the same, greedy)
command    regard train seq2seq_multi30k --out runs/multi30k-seq2seq
           regard eval runs/multi30k-seq2seq
"""

from regard.data.text.parallel_corpus import ParallelCorpus
from regard.models.seq2seq import SIZES, Config
from regard.tasks.text import translation
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=10_000, **SIZES["small"]),
        task=translation.Config(label_smoothing=0.1, beam_size=5, length_penalty=1.0),
        data=ParallelCorpus(
            "multi30k", "en", "de", style="moses", tokenizer="bpe", vocab_size=10_000, batch_tokens=8192
        ),
        train=Train(
            steps=5000,
            learning_rate=1e-3,
            schedule="inverse_sqrt",
            warmup_steps=1000,
            clip_grad_norm=1.0,
            average_checkpoints=5,
            score_interval=5,
            metric="loss",
            patience=20,
            compile=False,  # nothing is left to fuse between the networks and the products
        ),
    )
