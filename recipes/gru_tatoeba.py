"""Tatoeba EN-DE with a GRU and additive attention, trained on one CPU core: the model that ships as gru-additive.

task       translate short everyday sentences, English to German
data       Tatoeba (manythings.org/anki), 164,191 pairs; cased; joint byte-level BPE of 4,000
licence    CC BY 2.0 (tatoeba.org, www.manythings.org/anki): the model may be shipped with that attribution
paper      Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate. ICLR 2015
machine    one CPU core, about half an hour (3,460 target tokens a second of its time on a busy one, 5.7 million in all)
expected   sentences that can be understood; below the Transformer that ships as en-de (46.2 BLEU, a GPU)
measured   32.4 BLEU on the test part (beam 4, seed 1; 42 minutes on one thread of a busy CPU, 2026-11-15)
command    OMP_NUM_THREADS=1 regard train gru_tatoeba --out runs/gru-tatoeba
           regard eval runs/gru-tatoeba

About 2.7 million parameters; what ships is stored in int8, 2.9 MiB with its vocabulary.
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
            "tatoeba", "en", "de", style="raw", kind="bytes", vocabulary=4000, tokens=1024, longest=48, multiple=1
        ),
        train=Train(
            steps=5600,
            device="cpu",
            rate=1.5e-3,
            schedule="cosine",
            warmup=300,
            clip=1.0,
            ema=0.998,
            evaluate=1400,
            save=1400,
            score=0,
            metric="loss",
            store="float16",
        ),
    )
