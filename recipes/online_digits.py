"""Strings of spoken digits, written down while they are being said: online hard attention.

task       sound in, the digits that are said out; word error
data       fsdd: 3,000 recordings of single digits by six speakers, strung together 1 to 7 at a time with pauses; takes
           0-4 of every digit and speaker for test, 45-49 for validation; 420 fixed strings each
licence    CC BY-SA 4.0: what is trained on it may ship under that licence
paper      Luo, Chiu, Jaitly, Sutskever: Learning Online Alignments with Continuous Rewards Policy Gradient. 2016.
           arXiv:1608.01281
machine    one CPU core, an hour and a half: a loop over some hundred places, each string read four times an update
expected   more errors than CTC over the whole sound (digits_ctc), which hears what comes later too
measured   2.29 % of the words wrong in test strings, where CTC has 2.41 (seed 1, beam 4; 90 minutes of one CPU core)
command    regard train online_digits --out runs/digits-online
           regard eval runs/digits-online
"""

from regard.data.speech import Digits
from regard.models.online import Config
from regard.tasks import reinforced_listening
from regard.tasks.reinforced import Reinforce
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=14, width=192, hidden=192, layers=2, cell="lstm", dropout=0.15, inputs=40, stack=6),
        task=reinforced_listening.Config(
            smoothing=0.1,
            beams=4,
            reinforce=Reinforce(entropy=0.3, floor=0.01, fade=2500, credit="to_go", baseline="others", samples=4),
        ),
        data=Digits(),
        train=Train(
            steps=5000,
            rate=1e-3,
            schedule="cosine",
            warmup=300,
            decay=0.01,
            clip=1.0,
            ema=0.998,
            evaluate=250,
            save=500,
            workers=4,
            metric="word_error",
            compile=False,  # it reads in a loop over time
        ),
    )
