"""Tatoeba EN-DE with a small ByteNet: characters in, characters out, dilated convolutions and nothing else.

task       translate short everyday sentences, English to German
data       Tatoeba (manythings.org/anki), 164,191 EN-DE pairs; cased; characters
licence    CC BY 2.0 (tatoeba.org, www.manythings.org/anki): the model may be shared with that attribution
paper      Kalchbrenner et al.: Neural Machine Translation in Linear Time. 2016. arXiv:1610.10099
machine    one GPU, some 8 minutes (H200, estimated); 21 epochs
expected   below the Transformer of translate_tatoeba: no attention, and characters
measured   15.2 BLEU (sacreBLEU, cased, beam 5), chrF 32.7; the GRU with attention has 32.4, the Transformer 46.2
           (H200, seed 1, 2026-11-16; 16 minutes beside 13 other runs)
command    regard train bytenet_tatoeba --out runs/bytenet
           regard eval runs/bytenet
"""

from regard.data.parallel import Parallel
from regard.models.bytenet import SIZES, Config
from regard.tasks import translation
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=256, spare=8.0, **SIZES["small"]),
        task=translation.Config(smoothing=0.1, beams=5, length_penalty=1.0),
        data=Parallel("tatoeba", "en", "de", kind="char", vocabulary=256, tokens=16_384, longest=200),
        train=Train(
            steps=8000,
            rate=1e-3,
            schedule="cosine",
            warmup=500,
            clip=1.0,
            evaluate=1000,
            save=1000,
            average=5,
            score=5,
            metric="loss",
            compile=False,  # compiled, the first 450 updates took 13 minutes of a shared GPU
        ),
    )
