"""Read names, addresses and commands, transcribed letter by letter by CTC.

task       frames in, letters out; word and character error rate
data       an4: 948 training recordings (95 of them for validation), 130 test; mel cepstra with deltas
licence    free for any purpose, as the data's licence has it
paper      Graves, Fernández, Gomez, Schmidhuber: Connectionist Temporal Classification. ICML 2006
machine    one CPU core, an hour, or one GPU, a few minutes
expected   ESPnet's Transformer with CTC, on audio with speed perturbation: 7.6 % WER; this one: 10 to 20
measured   8.7 % WER on the test recordings, 10.8 on validation (seed 1, beam 16; 57 minutes of one CPU core)
command    regard train an4_ctc --out runs/an4-ctc
           regard eval runs/an4-ctc
"""

from dataclasses import replace

from _speech import TRAIN

from regard.data.audio.an4 import AN4
from regard.models.ctc import SIZES, Config
from regard.tasks.audio import ctc_speech_recognition
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=40, input_dim=39, **SIZES["small"]),
        task=ctc_speech_recognition.Config(beam_size=16),
        data=AN4(),
        train=replace(TRAIN, steps=6000, eval_interval=200),
    )
