"""The road from gated units to attention, walked: one small model on Tiny Shakespeare, a part freed at every step.

task       say the next character of a play
data       tinyshakespeare: 1,003,854 characters to train on, 111,540 to validate (the last tenth), 65 kinds
licence    not stated; the text is in the public domain
paper      the steps are a lecture's; Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, EMNLP 2014
machine    one CPU core, less than a minute for each stop of the road; 0.18 to 0.32 million parameters
expected   what computes all times at once takes less time; which says more after so few updates is measured
measured   nats a character on validation, and seconds of one core: gated 1.772 (43), weights 2.018 (55), candidates
           2.188 (21), keys 2.034 (30), heads 2.053 (30); seed 1, 2026-11-15. In 500 updates the gated unit is far
           ahead: order comes to it for free, the others must learn it from positions
command    regard train road_shakespeare --out runs/road-heads
           regard train road_shakespeare model.step=gated --out runs/road-gated
           regard train road_shakespeare model.step=weights --out runs/road-weights
           regard train road_shakespeare model.step=candidates --out runs/road-candidates
           regard train road_shakespeare model.step=keys --out runs/road-keys
           regard eval runs/road-heads --split val
"""

from regard.data.plain import PlainText
from regard.models.road import Config
from regard.tasks import language
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=69, step="heads", width=128, heads=4, layers=2, length=64),
        task=language.Config(),
        data=PlainText("tinyshakespeare", context=64, rows=16, kind="char"),
        train=Train(
            steps=500,
            device="cpu",
            rate=3e-3,
            schedule="cosine",
            warmup=50,
            floor=0.05,
            betas=(0.9, 0.99),
            eps=1e-8,
            decay=0.1,
            clip=1.0,
            evaluate=250,
            save=250,
            metric="loss",
            compile=False,  # half of the road is a loop over time
        ),
    )
