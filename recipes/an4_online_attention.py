"""Read names, addresses and commands, written down letter by letter while they are being said: online hard attention.

task       audio in, letters out; word and character error rate
data       an4: 948 training recordings (95 of them for validation), 130 test; mel cepstra with deltas
licence    free for any purpose, as the data's licence has it
paper      Luo, Chiu, Jaitly, Sutskever: Learning Online Alignments with Continuous Rewards Policy Gradient. 2016.
           arXiv:1608.01281
machine    one CPU core, 45 minutes in all: a loop over some hundred places, each recording read four times an update
expected   more errors than CTC (an4_ctc, 8.7), which is bidirectional; about those of an4_ctc_unidirectional (16.0)
measured   12.8 and 14.1 % WER on the test recordings, 15.9 and 16.7 on validation (seeds 1 and 2, beam 4; 25 to
           34 minutes of one CPU core)
command    regard train an4_ctc_unidirectional --out runs/an4-ctc-unidirectional   # first
           regard train an4_online_attention train.init_from=runs/an4-ctc-unidirectional --out runs/an4-online-attention
           regard eval runs/an4-online-attention

From scratch, with the same settings, 105 % WER on validation after 1,000 updates, where it has 18 % initialised from
CTC.
"""

from dataclasses import replace

from _speech import REINFORCED_TASK, TRAIN

from regard.data.audio.an4 import AN4
from regard.models.online_alignment import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        # Four frames are 40 ms: letters come at up to fifteen a second, and a position writes one letter at most. At
        # first it writes at a fourth of the positions, about as many as there are letters.
        model=Config(
            vocab=40,
            width=192,
            hidden=256,
            layers=2,
            cell="lstm",
            emission_bias=-1.2,
            dropout=0.3,
            input_dim=39,
            frame_stack=4,
        ),
        task=replace(REINFORCED_TASK, reinforce=replace(REINFORCED_TASK.reinforce, entropy_steps=700)),
        data=AN4(),
        train=replace(TRAIN, steps=1500, learning_rate=1e-3, warmup_steps=150, eval_interval=125),
    )
