"""Strings of spoken digits, transcribed by CTC: two bidirectional LSTMs over a quarter of the frames.

task       audio in, spoken digits out; WER
data       fsdd: 3,000 recordings of single digits by six speakers, concatenated 1 to 7 at a time with pauses; takes
           0-4 of every digit and speaker for test, 45-49 for validation; 420 fixed strings each
licence    CC BY-SA 4.0: what is trained on it may ship under that licence
paper      Graves, Fernández, Gomez, Schmidhuber: Connectionist Temporal Classification. ICML 2006
machine    one CPU thread, about 20 minutes
expected   a WER of a few per cent on the test strings
measured   2.41 % on the test strings (39 substitutions, 1 deletion of 1,659 words), 1.43 % on validation, as stored in
           int8 (one thread of a busy CPU, 20 minutes, seed 1, 2026-11-15)
command    regard train digits_ctc --out runs/digits
           regard eval runs/digits
"""

from dataclasses import replace

from _speech import TRAIN

from regard.data.audio.fsdd import SpokenDigits
from regard.models.ctc import SIZES, Config
from regard.tasks.audio import ctc_speech_recognition
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=14, **SIZES["tiny"]),
        task=ctc_speech_recognition.Config(beam_size=8),
        data=SpokenDigits(),
        train=replace(
            TRAIN,
            steps=2000,
            learning_rate=3e-3,
            warmup_steps=150,
            weight_decay=0.01,
            ema_decay=0.995,
            save_interval=250,
            num_workers=1,
            save_dtype="int8",
        ),
    )
