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

from regard.data.text.cmudict import CMUDict
from regard.models.online_alignment import Config
from regard.tasks.reinforce import Reinforce
from regard.tasks.text import reinforced_pronunciation
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=70, width=256, hidden=512, layers=2, cell="lstm", dropout=0.3),
        task=reinforced_pronunciation.Config(
            label_smoothing=0.1,
            beam_size=4,
            reinforce=Reinforce(
                entropy=0.3,
                final_entropy=0.01,
                entropy_steps=4000,
                credit="to_go",
                baseline="leave_one_out",
                num_samples=4,
            ),
        ),
        data=CMUDict("cmudict", batch_tokens=4096),
        train=Train(
            steps=8000,
            learning_rate=1e-3,
            schedule="cosine",
            warmup_steps=400,
            min_learning_rate_ratio=0.01,
            eps=1e-8,
            clip_grad_norm=1.0,
            ema_decay=0.999,
            eval_interval=1000,
            save_interval=1000,
            score_interval=100,  # decode and score only at the end
            metric="loss",
            compile=False,  # it reads in a loop over time
        ),
    )
