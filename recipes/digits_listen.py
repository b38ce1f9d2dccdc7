"""Strings of spoken digits, written down by a decoder with location-aware attention.

task       sound in, the digits that are said out; word error of the best beam
data       fsdd: 3,000 recordings of single digits by six speakers, strung together 1 to 7 at a time with pauses; takes
           0-4 of every digit and speaker for test, 45-49 for validation; 420 fixed strings each
licence    CC BY-SA 4.0: what is trained on it may ship under that licence
paper      Chorowski et al.: Attention-Based Models for Speech Recognition. NeurIPS 2015, arXiv:1506.07503
machine    one CPU core, 22 minutes, or one GPU, a few
expected   a word error of a few per cent on the test strings, as with CTC (digits_ctc)
measured   0.72 % word error on the test strings, 0.36 on validation (one busy CPU core); ships as digits-listen
command    regard train digits_listen --out runs/digits-listen
           regard eval runs/digits-listen
           regard train digits_listen --out runs/digits-additive model.aligner=additive
"""

from regard.data.speech import Digits
from regard.models.listener import SIZES, Config
from regard.tasks import listening
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=14, **SIZES["tiny"]),
        task=listening.Config(smoothing=0.1, beams=4),
        data=Digits(),
        train=Train(
            steps=5000,
            rate=2e-3,
            schedule="cosine",
            warmup=300,
            betas=(0.9, 0.98),
            decay=0.01,
            clip=1.0,
            ema=0.998,
            evaluate=250,
            save=500,
            workers=4,
            metric="word_error",
            compile=False,  # the decoder is a loop over time: compiling it gains little
        ),
    )
