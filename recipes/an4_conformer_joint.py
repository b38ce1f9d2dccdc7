"""Read names, addresses and commands, by a Conformer with CTC and an attention decoder, trained and searched jointly.

task       frames in, letters out; word and character error rate of joint search
data       an4: 948 training recordings (95 of them for validation), 130 test; mel cepstra with deltas
licence    free for any purpose, as the data's licence has it
paper      Watanabe et al.: Hybrid CTC/Attention Architecture for End-to-End Speech Recognition. IEEE JSTSP 2017
machine    one GPU, a few minutes
expected   below an4_attention initialised from CTC (6.7 %): CTC aligns, and the decoder need not be taught in two runs
measured   not yet
command    regard train an4_conformer_joint --out runs/an4-joint
           regard eval runs/an4-joint
"""

from dataclasses import replace

from _speech import AN4_AUGMENTED, CONFORMER_TRAIN

from regard.models.hybrid_asr import SIZES, Config
from regard.tasks.audio import joint_speech_recognition
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=40, input_dim=39, **SIZES["small"] | {"subsampling": "conv1d", "channels": 144}),
        task=joint_speech_recognition.Config(label_smoothing=0.1, beam_size=8, ctc_weight=0.4, ctc_decode_weight=0.4),
        data=AN4_AUGMENTED,
        train=replace(CONFORMER_TRAIN, steps=6000, eval_interval=500),
    )
