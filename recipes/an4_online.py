"""Read names, addresses and commands, written down letter by letter while they are being said: online hard attention.

task       sound in, what is said out, in letters; word and letter error
data       an4: 948 recordings to train on (95 of them held out for validation), 130 to test; mel cepstra and two slopes
licence    free for any purpose, as the data's licence has it
paper      Luo, Chiu, Jaitly, Sutskever: Learning Online Alignments with Continuous Rewards Policy Gradient. 2016.
           arXiv:1608.01281
machine    one CPU core, 45 minutes in all: a loop over some hundred places, each recording read four times an update
expected   more errors than CTC (an4_ctc, 8.7), which hears what comes later too; about those of an4_forwards (16.0)
measured   12.8 and 14.1 % word error on the test recordings, 15.9 and 16.7 on validation (seeds 1 and 2, beam 4; 25 to
           34 minutes of one CPU core)
command    regard train an4_forwards --out runs/an4-forwards                           # first it learns to hear, by CTC
           regard train an4_online train.begin=runs/an4-forwards --out runs/an4-online
           regard eval runs/an4-online

From scratch, with the same settings, 105 % of the words are wrong on validation after 1,000 updates, where it has 18 %
begun so.
"""

from regard.data.an4 import AN4
from regard.models.online import Config
from regard.tasks import reinforced_listening
from regard.tasks.reinforced import Reinforce
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        # Four frames are 40 ms: letters come at up to fifteen a second, and a place writes one letter at most. At first
        # it writes at a fourth of the places, about as many as there are letters: more, and it would write what it has
        # not yet heard.
        model=Config(
            vocab=40, width=192, hidden=256, layers=2, cell="lstm", offset=-1.2, dropout=0.3, inputs=39, stack=4
        ),
        task=reinforced_listening.Config(
            smoothing=0.1,
            beams=4,
            reinforce=Reinforce(entropy=0.3, floor=0.01, fade=700, credit="to_go", baseline="others", samples=4),
        ),
        data=AN4(),
        train=Train(
            steps=1500,
            rate=1e-3,
            schedule="cosine",
            warmup=150,
            decay=0.02,
            clip=1.0,
            ema=0.998,
            evaluate=125,
            save=500,
            workers=4,
            metric="word_error",
            compile=False,  # it reads in a loop over time
        ),
    )
