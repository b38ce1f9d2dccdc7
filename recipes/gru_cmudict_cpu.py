"""Letters to sounds on one CPU thread: a small GRU encoder-decoder with attention; ships with the package as sounds-en.

task       "xylophone" -> Z AY L AH F OW N
data       CMU pronouncing dictionary, 109,926 words to train on, 3,000 to choose by, 12,000 to test; stress left out
licence    BSD-like (Carnegie Mellon University 1993-2015): the model may be shipped with that notice
paper      Toshniwal, Livescu: Jointly Learning to Align and Convert Graphemes to Phonemes with Neural Attention Models.
           2016. arXiv:1610.06540; Bahdanau, Cho, Bengio. ICLR 2015
machine    one CPU thread, about 17 minutes of its time; 1.1 million parameters, 2.1 MiB in float16
expected   below 6.5 % of the sounds and 28 % of the words wrong
measured   26.8 % of the words and 6.38 % of the sounds of the test part wrong (seed 1, 2026-11-15)
command    regard train gru_cmudict_cpu --out runs/sounds
           regard eval runs/sounds
           regard pronounce xylophone --model runs/sounds
"""

from regard.data.text.cmudict import CMUDict
from regard.models.rnnsearch import Config
from regard.tasks.text import pronunciation
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=70, width=128, hidden=192, align_width=128, readout=None, dropout=0.1),
        task=pronunciation.Config(label_smoothing=0.1, beam_size=4),
        data=CMUDict("cmudict", batch_tokens=2048),
        train=Train(
            steps=4500,
            device="cpu",
            learning_rate=2e-3,
            schedule="cosine",
            warmup_steps=300,
            min_learning_rate_ratio=0.01,
            eps=1e-8,
            clip_grad_norm=1.0,
            ema_decay=0.998,
            eval_interval=1000,
            save_interval=1000,
            log_interval=100,
            score_interval=100,  # looks between decoding: only at the end
            metric="loss",
            save_dtype="float16",
        ),
    )
