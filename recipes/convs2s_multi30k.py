"""Multi30k DE-EN with ConvS2S: gated convolutions, and a look at the source in every layer of the decoder.

task       translate image captions, German to English (data.source=en data.target=de for the other way)
data       Multi30k, 29,000 pairs; lower-case, Moses-tokenised; joint BPE of 10,000
licence    research and education only: train it here, do not redistribute the model
paper      Gehring et al.: Convolutional Sequence to Sequence Learning. ICML 2017. arXiv:1705.03122
machine    one GPU, a few minutes (H200)
expected   above 34.1 BLEU DE-EN on test_2016 (a public tutorial's: greedy, lower-case, words as tokens)
measured   DE-EN 43.8 on test_2016 with 6.1 million parameters (tokenised, lower-case, beam 5; H200),
           EN-DE 38.7 (the same, greedy)
command    regard train convs2s_multi30k --out runs/multi30k-convs2s
           regard eval runs/multi30k-convs2s
"""

from regard.data.text.parallel_corpus import ParallelCorpus
from regard.models.convs2s import SIZES, Config
from regard.tasks.text import translation
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=10_000, length=256, **SIZES["small"]),
        task=translation.Config(label_smoothing=0.1, beam_size=5, length_penalty=1.0),
        data=ParallelCorpus(
            "multi30k", "de", "en", style="moses", tokenizer="bpe", vocab_size=10_000, batch_tokens=8192
        ),
        train=Train(
            steps=6000,
            learning_rate=1e-3,
            schedule="inverse_sqrt",
            warmup_steps=1000,
            clip_grad_norm=0.5,
            average_checkpoints=5,
            score_interval=5,
            metric="loss",
            patience=20,
        ),
    )
