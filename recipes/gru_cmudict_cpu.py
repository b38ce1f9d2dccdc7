"""Letters to phonemes on one CPU thread: a small GRU encoder-decoder with attention; ships as sounds-en.

task       "xylophone" -> Z AY L AH F OW N
data       CMU pronouncing dictionary, 109,926 training, 3,000 validation and 12,000 test words; without stress
licence    BSD-like (Carnegie Mellon University 1993-2015): the model may be shipped with that notice
paper      Toshniwal, Livescu: Jointly Learning to Align and Convert Graphemes to Phonemes with Neural Attention Models.
           2016. arXiv:1610.06540; Bahdanau, Cho, Bengio. ICLR 2015
machine    one CPU thread, about 17 minutes of its time; 1.1 million parameters, 2.1 MiB in float16
expected   below 6.5 % PER and 28 % WER
measured   26.8 % WER and 6.38 % PER on test (seed 1, 2026-11-15)
command    regard train gru_cmudict_cpu --out runs/sounds
           regard eval runs/sounds
           regard pronounce xylophone --model runs/sounds
"""

from dataclasses import replace

from _cmudict import DATA, TRAIN

from regard.models.rnnsearch import Config
from regard.tasks.text import pronunciation
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=70, width=128, hidden=192, align_width=128, readout=None, dropout=0.1),
        task=pronunciation.Config(label_smoothing=0.1, beam_size=4),
        data=replace(DATA, batch_tokens=2048),
        train=replace(
            TRAIN,
            steps=4500,
            device="cpu",
            learning_rate=2e-3,
            warmup_steps=300,
            ema_decay=0.998,
            log_interval=100,
            compile=None,
            save_dtype="float16",
        ),
    )
