"""Letters to phonemes with a small T5: how English words are pronounced.

task       "pronounce: m a r b l e s" -> "M AA R B AH L Z"
data       CMU pronouncing dictionary, 109,926 words to train on, 12,000 to test; without stress
licence    BSD-like (Carnegie Mellon University): the model may be shipped with that notice
paper      Raffel et al., T5, JMLR 2020; Toshniwal, Livescu: Jointly Learning to Align and Convert Graphemes to Phonemes
           with Neural Attention Models, 2016
machine    one GPU, about 5 minutes (H200); 5.9 million parameters
expected   22 % WER and 5.2 % PER, as published Transformers on another split of the dictionary
           (recalled, not checked: Yolchuyeva et al. 2019, 22.1 and 5.23)
measured   23.7 % WER and 5.7 % PER (H200, seed 1, beam 4, 2026-11-16)
command    regard train t5_cmudict --out runs/t5-cmudict
           regard eval runs/t5-cmudict
"""

from dataclasses import replace

from _t5 import MODEL, TRAIN

from regard.data.text.task_mixture import TaskMixture
from regard.tasks.text import text_to_text
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=replace(MODEL, vocab=80, width=256, heads=4, ffn=768, encoder_layers=3, decoder_layers=3, dropout=0.2),
        task=text_to_text.Config(label_smoothing=0.1, beam_size=4, eval_examples=500),
        data=TaskMixture(
            ("pronounce",), tokenizer="word", vocab_size=200, batch_tokens=16_384, max_length=48, max_target_length=40
        ),
        train=replace(
            TRAIN,
            steps=6000,
            warmup_steps=500,
            ema_decay=0.999,
            eval_interval=1500,
            save_interval=1500,
            score_interval=1,
        ),
    )
