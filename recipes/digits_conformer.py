"""Strings of spoken digits, transcribed by a Conformer with CTC: attention and convolutions in place of LSTMs.

task       audio in, spoken digits out; WER
data       fsdd: 3,000 recordings of single digits by six speakers, concatenated 1 to 7 at a time with pauses; takes
           0-4 of every digit and speaker for test, 45-49 for validation; 420 fixed strings each
licence    CC BY-SA 4.0: what is trained on it may ship under that licence
paper      Gulati et al.: Conformer. Interspeech 2020, arXiv:2005.08100; Graves et al.: CTC. ICML 2006
machine    one GPU, a few minutes, or one CPU core, about two hours
expected   fewer errors than digits_ctc (2.41 %), with the updates of digits_attention (0.72 %)
measured   not yet
command    regard train digits_conformer --out runs/digits-conformer
           regard eval runs/digits-conformer
"""

from dataclasses import replace

from _speech import CONFORMER_TRAIN

from regard.data.audio.fsdd import SpokenDigits
from regard.models.conformer import SIZES, Config
from regard.tasks.audio import ctc_speech_recognition
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=14, input_dim=40, **SIZES["tiny"]),
        task=ctc_speech_recognition.Config(beam_size=8),
        data=SpokenDigits(),
        train=replace(CONFORMER_TRAIN, steps=5000, warmup_steps=500),
    )
