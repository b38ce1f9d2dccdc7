"""Read names, addresses and commands, written down letter by letter by a decoder with location-aware attention.

task       frames in, letters out; word and character error rate of beam search
data       an4: 948 training recordings (95 of them for validation), 130 test; mel cepstra with deltas
licence    free for any purpose, as the data's licence has it
paper      Chorowski et al.: Attention-Based Models for Speech Recognition. NeurIPS 2015, arXiv:1506.07503
machine    one CPU core: an hour, and another for the CTC it is initialised from; or a few minutes of a GPU
expected   from scratch far above CTC's word error (an4_ctc): 48 minutes of speech teach a decoder to spell
           before it learns to listen. Initialised from CTC's encoder about CTC's
measured   6.7 % WER on the test recordings initialised from CTC's encoder (seeds 1 to 3: 5.4 to 7.9; 40 minutes of
           one CPU core each), where CTC itself has 8.7; from scratch 40.6, twice as many updates (seed 1); beam 8
command    regard train an4_ctc --out runs/an4-ctc
           regard train an4_attention train.init_from=runs/an4-ctc train.steps=2000 train.warmup_steps=200 --out runs/an4-attention-from-ctc
           regard eval runs/an4-attention-from-ctc
"""  # noqa: E501

from dataclasses import replace

from _speech import TRAIN

from regard.data.audio.an4 import AN4
from regard.models.attention_asr import SIZES, Config
from regard.tasks.audio import speech_recognition
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=40, input_dim=39, **SIZES["small"]),
        task=speech_recognition.Config(label_smoothing=0.1, beam_size=8),
        data=AN4(),
        train=replace(TRAIN, steps=4000, learning_rate=1e-3, eval_interval=200, score_interval=5, metric="loss"),
    )
