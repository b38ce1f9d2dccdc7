"""Tatoeba EN-DE with a small ByteNet: characters in, characters out, dilated convolutions and nothing else.

task       translate short everyday sentences, English to German
data       Tatoeba (manythings.org/anki), 164,191 EN-DE pairs; cased; characters
licence    CC BY 2.0 (tatoeba.org, www.manythings.org/anki): the model may be shared with that attribution
paper      Kalchbrenner et al.: Neural Machine Translation in Linear Time. 2016. arXiv:1610.10099
machine    one GPU, some 8 minutes (H200, estimated); 21 epochs
expected   below the Transformer of transformer_tatoeba: no attention, and characters
measured   15.2 BLEU (sacreBLEU, cased, beam 5), chrF 32.7; the GRU with attention has 32.4, the Transformer 46.2
           (H200, seed 1, 2026-11-16; 16 minutes shared with 13 other runs)
command    regard train bytenet_tatoeba --out runs/bytenet
           regard eval runs/bytenet
"""

from regard.data.text.parallel_corpus import ParallelCorpus
from regard.models.bytenet import SIZES, Config
from regard.tasks.text import translation
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=256, length_offset=8.0, **SIZES["small"]),
        task=translation.Config(label_smoothing=0.1, beam_size=5, length_penalty=1.0),
        data=ParallelCorpus(
            "tatoeba", "en", "de", tokenizer="char", vocab_size=256, batch_tokens=16_384, max_length=200
        ),
        train=Train(
            steps=8000,
            learning_rate=1e-3,
            schedule="cosine",
            warmup_steps=500,
            clip_grad_norm=1.0,
            eval_interval=1000,
            save_interval=1000,
            average_checkpoints=5,
            score_interval=5,
            metric="loss",
            compile=False,  # compiled, the first 450 updates took 13 minutes of a shared GPU
        ),
    )
