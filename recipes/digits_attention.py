"""Strings of spoken digits, written down by a decoder with location-aware attention.

task       audio in, spoken digits out; WER of beam search
data       fsdd: 3,000 recordings of single digits by six speakers, concatenated 1 to 7 at a time with pauses; takes
           0-4 of every digit and speaker for test, 45-49 for validation; 420 fixed strings each
licence    CC BY-SA 4.0: what is trained on it may ship under that licence
paper      Chorowski et al.: Attention-Based Models for Speech Recognition. NeurIPS 2015, arXiv:1506.07503
machine    one CPU core, 22 minutes, or one GPU, a few
expected   a WER of a few per cent on the test strings, as with CTC (digits_ctc)
measured   0.72 % WER on the test strings, 0.36 on validation (one busy CPU core); ships as digits-listen
command    regard train digits_attention --out runs/digits-attention
           regard eval runs/digits-attention
           regard train digits_attention --out runs/digits-additive model.aligner=additive
"""

from dataclasses import replace

from _speech import TRAIN

from regard.data.audio.fsdd import SpokenDigits
from regard.models.attention_asr import SIZES, Config
from regard.tasks.audio import speech_recognition
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=14, **SIZES["tiny"]),
        task=speech_recognition.Config(label_smoothing=0.1, beam_size=4),
        data=SpokenDigits(),
        train=replace(TRAIN, steps=5000, weight_decay=0.01),
    )
