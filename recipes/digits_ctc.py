"""Strings of spoken digits, transcribed by CTC: two bidirectional LSTMs over a quarter of the frames.

task       sound in, the digits that are said out; word error of the likeliest text
data       fsdd: 3,000 recordings of single digits by six speakers, strung together 1 to 7 at a time with pauses; takes
           0-4 of every digit and speaker for test, 45-49 for validation; 420 fixed strings each
licence    CC BY-SA 4.0: what is trained on it may ship under that licence
paper      Graves, Fernández, Gomez, Schmidhuber: Connectionist Temporal Classification. ICML 2006
machine    one CPU thread, about 15 minutes
expected   a word error of a few per cent on the test strings
measured   not measured yet
command    regard train digits_ctc --out runs/digits
           regard eval runs/digits
"""

from regard.data.speech import Digits
from regard.models.ctc import SIZES, Config
from regard.tasks import transcription
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=14, **SIZES["tiny"]),
        task=transcription.Config(beams=8),
        data=Digits(),
        train=Train(
            steps=3000,
            rate=3e-3,
            schedule="cosine",
            warmup=150,
            betas=(0.9, 0.98),
            decay=0.01,
            clip=1.0,
            ema=0.995,
            evaluate=300,
            save=300,
            metric="word_error",
            compile=False,  # the recurrent layers are one fused call already
            store="int8",
        ),
    )
