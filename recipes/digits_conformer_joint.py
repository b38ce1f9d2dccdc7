"""Strings of spoken digits by a Conformer with CTC and an attention decoder, trained and searched jointly.

task       audio in, spoken digits out; WER of joint search
data       fsdd: 3,000 recordings of single digits by six speakers, concatenated 1 to 7 at a time with pauses; takes
           0-4 of every digit and speaker for test, 45-49 for validation; 420 fixed strings each
licence    CC BY-SA 4.0: what is trained on it may ship under that licence
paper      Watanabe et al.: Hybrid CTC/Attention Architecture for End-to-End Speech Recognition. IEEE JSTSP 2017
machine    one GPU, a few minutes, or one CPU core, about two hours
expected   at most the errors of digits_attention (0.72 %), with as many updates
measured   not yet
command    regard train digits_conformer_joint --out runs/digits-joint
           regard eval runs/digits-joint
           regard train digits_conformer_joint --out runs/digits-decoder task.ctc_weight=0 task.ctc_decode_weight=0
"""

from dataclasses import replace

from _speech import CONFORMER_TRAIN

from regard.data.audio.fsdd import SpokenDigits
from regard.models.hybrid_asr import SIZES, Config
from regard.tasks.audio import joint_speech_recognition
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=14, input_dim=40, **SIZES["tiny"]),
        task=joint_speech_recognition.Config(label_smoothing=0.1, beam_size=4),
        data=SpokenDigits(),
        train=replace(CONFORMER_TRAIN, steps=5000, warmup_steps=500),
    )
