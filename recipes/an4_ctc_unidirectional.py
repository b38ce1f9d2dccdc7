"""Read names, addresses and commands, transcribed by unidirectional CTC.

task       frames in, letters out; word and character error rate
data       an4: 948 training recordings (95 of them for validation), 130 test; mel cepstra with deltas
licence    free for any purpose, as the data's licence has it
paper      Graves, Fernández, Gomez, Schmidhuber: Connectionist Temporal Classification. ICML 2006
machine    one CPU core, 12 minutes
expected   more errors than bidirectional CTC (an4_ctc); an4_online_attention is initialised from its encoder
measured   16.0 % WER on the test recordings, 17.6 on validation (seed 1, beam 16; 11 minutes of one CPU core)
command    regard train an4_ctc_unidirectional --out runs/an4-ctc-unidirectional
           regard eval runs/an4-ctc-unidirectional
"""

from dataclasses import replace

from _speech import TRAIN

from regard.data.audio.an4 import AN4
from regard.models.ctc import Config
from regard.tasks.audio import ctc_speech_recognition
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(
            vocab=40,
            input_dim=39,
            frame_stack=4,
            subsampling_layers=0,
            width=192,
            hidden=256,
            layers=2,
            encoder="lstm(directions=1)",
            dropout=0.3,
        ),
        task=ctc_speech_recognition.Config(beam_size=16),
        data=AN4(),
        train=replace(TRAIN, steps=3000, eval_interval=200),
    )
