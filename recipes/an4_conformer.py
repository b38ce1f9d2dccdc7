"""Read names, addresses and commands, transcribed letter by letter by a Conformer with CTC.

task       frames in, letters out; word and character error rate
data       an4: 948 training recordings (95 of them for validation), 130 test; mel cepstra with deltas
licence    free for any purpose, as the data's licence has it
paper      Gulati et al.: Conformer. Interspeech 2020, arXiv:2005.08100; Graves et al.: CTC. ICML 2006
machine    one GPU, a few minutes
expected   about the errors of an4_ctc (8.7 %), with as many updates
measured   not yet
command    regard train an4_conformer --out runs/an4-conformer
           regard eval runs/an4-conformer
"""

from dataclasses import replace

from _speech import AN4_AUGMENTED, CONFORMER_TRAIN

from regard.models.conformer import SIZES, Config
from regard.tasks.audio import ctc_speech_recognition
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        # Cepstra have no order to convolve over: the strided convolutions go over time alone.
        model=Config(vocab=40, input_dim=39, **SIZES["small"] | {"subsampling": "conv1d", "channels": 144}),
        task=ctc_speech_recognition.Config(beam_size=16),
        data=AN4_AUGMENTED,
        train=replace(CONFORMER_TRAIN, steps=6000, eval_interval=500),
    )
