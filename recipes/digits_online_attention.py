"""Strings of spoken digits, written down while they are being said: online hard attention.

task       audio in, spoken digits out; WER
data       fsdd: 3,000 recordings of single digits by six speakers, concatenated 1 to 7 at a time with pauses; takes
           0-4 of every digit and speaker for test, 45-49 for validation; 420 fixed strings each
licence    CC BY-SA 4.0: what is trained on it may ship under that licence
paper      Luo, Chiu, Jaitly, Sutskever: Learning Online Alignments with Continuous Rewards Policy Gradient. 2016.
           arXiv:1608.01281
machine    one CPU core, an hour and a half: a loop over some hundred places, each string read four times an update
expected   more errors than CTC over the whole audio (digits_ctc), which is bidirectional
measured   2.29 % WER on the test strings, where CTC has 2.41 (seed 1, beam 4; 90 minutes of one CPU core)
command    regard train digits_online_attention --out runs/digits-online
           regard eval runs/digits-online
"""

from dataclasses import replace

from _speech import REINFORCED_TASK, TRAIN

from regard.data.audio.fsdd import SpokenDigits
from regard.models.online_alignment import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=14, width=192, hidden=192, layers=2, cell="lstm", dropout=0.15, input_dim=40, frame_stack=6),
        task=REINFORCED_TASK,
        data=SpokenDigits(),
        train=replace(TRAIN, steps=5000, learning_rate=1e-3, weight_decay=0.01),
    )
