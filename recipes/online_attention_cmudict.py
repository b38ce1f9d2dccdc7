"""Letters to phonemes, written while the word is still being read: online hard attention.

task       "xylophone" -> Z AY L AH F OW N; at each letter the model writes a sound or reads on
data       CMU pronouncing dictionary, 109,926 training, 3,000 validation and 12,000 test words; without stress
licence    BSD-like (Carnegie Mellon University 1993-2015): the model may be shipped with that notice
paper      Luo, Chiu, Jaitly, Sutskever: Learning Online Alignments with Continuous Rewards Policy Gradient. 2016.
           arXiv:1608.01281
machine    one GPU, about 15 minutes (H200): every word is read four times an update
expected   more errors than with attention over the whole word: a sound is written before the letters after it are
           known, unless the model learns to wait
measured   6.2 % PER and 26.8 % WER (seed 1, beam 4; 15 minutes of an H200 shared with 13 other runs)
command    regard train online_attention_cmudict --out runs/sounds-online
           regard train online_attention_cmudict --out runs/sounds-online-learned task.reinforce.baseline=learned
           regard eval runs/sounds-online
"""

from _cmudict import DATA, REINFORCED_TASK, TRAIN

from regard.models.online_alignment import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=70, width=256, hidden=512, layers=2, cell="lstm", dropout=0.3),
        task=REINFORCED_TASK,
        data=DATA,
        train=TRAIN,
    )
