"""Digit strings written by hand: a pen that reads its text through a sliding window; a CPU learns it; ships.

task       write a string of digits as pen offsets
data       UJIpenchars2, its digits: 60 writers, each digit twice; 40 writers to train on, 10 to validate, 10 to test
licence    CC BY 4.0 (Llorens et al., UCI): the model may be shipped with that attribution
paper      Graves, Generating Sequences With Recurrent Neural Networks, 2013, arXiv:1308.0850, section 5 (smaller)
machine    one CPU core, 5 to 6 minutes of its time
expected   digits that can be read at a bias of 1 to 2
measured   -1.928 nats per point on validation, -1.826 on test (seed 1, 2026-11-15); of the digits it writes a network
           that learned to read real ones reads 97.0 % as asked at a bias of 1 and of 2 (99.0 % of real digits)
command    regard train handwriting_uji --out runs/pen-digits
           regard eval runs/pen-digits
           regard handwrite 31415 --model runs/pen-digits -o digits.png
"""

from regard.data.strokes.handwriting import HandwritingLines
from regard.models.handwriting import Config
from regard.tasks.strokes import handwriting
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=11, hidden=128, mixtures=12, aligner="gmm(mixtures=4, step=0.05)"),
        task=handwriting.Config(),
        data=HandwritingLines("uji", spacing=0.14, unit=0.14, max_length=5),
        train=Train(
            steps=2500,
            device="cpu",
            learning_rate=3e-3,
            schedule="cosine",
            warmup_steps=100,
            min_learning_rate_ratio=0.02,
            betas=(0.9, 0.98),
            eps=1e-8,
            weight_decay=0.01,
            clip_grad_norm=1.0,
            ema_decay=0.995,
            eval_interval=500,
            save_interval=500,
            metric="loss",
            save_dtype="float16",
        ),
    )
