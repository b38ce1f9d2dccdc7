"""From gated units to attention in five steps: one small model on Tiny Shakespeare.

task       predict the next character of a play
data       tinyshakespeare: 1,003,854 characters to train on, 111,540 to validate (the last tenth), 65 kinds
licence    not stated; the text is in the public domain
paper      the steps are a lecture's; Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, EMNLP 2014
machine    one CPU core, less than a minute for each step; 0.18 to 0.32 million parameters
expected   what computes all times at once takes less time; which says more after so few updates is measured
measured   nats per character on validation, and seconds of one core: gated 1.772 (43), weights 2.018 (55), candidates
           2.188 (21), keys 2.034 (30), heads 2.053 (30); seed 1, 2026-11-15. In 500 updates the gated unit is far
           ahead: order comes to it for free, the others must learn it from positions
command    regard train gru_to_attention_shakespeare --out runs/road-heads
           regard train gru_to_attention_shakespeare model.variant=gated --out runs/road-gated
           regard train gru_to_attention_shakespeare model.variant=weights --out runs/road-weights
           regard train gru_to_attention_shakespeare model.variant=candidates --out runs/road-candidates
           regard train gru_to_attention_shakespeare model.variant=keys --out runs/road-keys
           regard eval runs/road-heads --split val
"""

from regard.data.text.text_file import TextFile
from regard.models.gru_to_attention import Config
from regard.tasks.text import language_modeling
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=69, variant="heads", width=128, heads=4, layers=2, length=64),
        task=language_modeling.Config(),
        data=TextFile("tinyshakespeare", context_length=64, batch_size=16, tokenizer="char"),
        train=Train(
            steps=500,
            device="cpu",
            learning_rate=3e-3,
            schedule="cosine",
            warmup_steps=50,
            min_learning_rate_ratio=0.05,
            betas=(0.9, 0.99),
            eps=1e-8,
            weight_decay=0.1,
            clip_grad_norm=1.0,
            eval_interval=250,
            save_interval=250,
            metric="loss",
            compile=False,  # half of the variants loop over time
        ),
    )
