"""Letters to phonemes with any aligner: the same encoder and decoder, and what looks at the letters chosen by one word.

task       "xylophone" -> Z AY L AH F OW N
data       CMU pronouncing dictionary, 109,926 training, 3,000 validation and 12,000 test words; without stress
licence    BSD-like (Carnegie Mellon University 1993-2015): the model may be shipped with that notice
paper      Toshniwal, Livescu: Jointly Learning to Align and Convert Graphemes to Phonemes with Neural Attention Models.
           2016. arXiv:1610.06540
machine    one GPU, about 10 minutes (H200); 6 million parameters
expected   below 6 % PER and 26 % WER for the best aligner; published, on another split of the
           dictionary (recalled): 5.0 and 21.7 with attention, 5.45 and 23.55 without
measured   PER and WER, %: location 5.20 and 22.1, gmm 5.24 and 22.6, additive 5.27 and 22.8, monotonic 5.36
           and 23.0 (H200, seed 1, beam 4, 2026-11-16)
command    regard train gru_cmudict --out runs/sounds-additive
           regard train gru_cmudict model.aligner=gmm --out runs/sounds-gmm
           regard train gru_cmudict model.aligner=location --out runs/sounds-location
           regard train gru_cmudict model.aligner=monotonic --out runs/sounds-monotonic
           regard eval runs/sounds-additive
"""

from dataclasses import replace

from _cmudict import DATA, TRAIN

from regard.models.rnnsearch import Config
from regard.tasks.text import pronunciation
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=70, width=256, hidden=512, align_width=256, readout=None, dropout=0.3),
        task=pronunciation.Config(label_smoothing=0.1, beam_size=4),
        data=replace(DATA, batch_tokens=8192),
        train=TRAIN,
    )
