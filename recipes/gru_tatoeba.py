"""Tatoeba EN-DE with a GRU and additive attention, trained on one CPU core: the model that ships as gru-additive.

task       translate short everyday sentences, English to German
data       Tatoeba (manythings.org/anki), 164,191 pairs; cased; joint byte-level BPE of 4,000
licence    CC BY 2.0 (tatoeba.org, www.manythings.org/anki): the model may be shipped with that attribution
paper      Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate. ICLR 2015
machine    one CPU core, about half an hour
expected   sentences that can be understood; below the Transformer that ships as en-de (46.2 BLEU, a GPU)
measured   not measured yet
command    OMP_NUM_THREADS=1 regard train gru_tatoeba --out runs/gru-tatoeba
           regard eval runs/gru-tatoeba
"""

from regard.data.parallel import Parallel
from regard.models.rnnsearch import Config
from regard.tasks import translation
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=4000, width=192, hidden=256, align=128, readout=None, dropout=0.1, tied=True),
        task=translation.Config(smoothing=0.1, beams=4, length_penalty=1.0),
        data=Parallel(
            "tatoeba", "en", "de", style="raw", kind="bytes", vocabulary=4000, tokens=2048, longest=48, multiple=1
        ),
        train=Train(
            steps=4000,
            device="cpu",
            rate=2e-3,
            schedule="cosine",
            warmup=200,
            clip=1.0,
            ema=0.998,
            evaluate=1000,
            save=1000,
            score=0,
            metric="loss",
            store="float16",
        ),
    )
