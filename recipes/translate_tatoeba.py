"""Tatoeba EN-DE (or EN-FR): the translators that ship with the package, for everyday sentences.

    task       translate short everyday sentences, English to German (data.target=fr for French)
    data       Tatoeba (manythings.org/anki), 164,191 EN-DE, 136,986 EN-FR pairs; cased; joint byte-level BPE of 8,000
    licence    CC BY 2.0 (tatoeba.org, www.manythings.org/anki): the model may be shipped with that attribution
    paper      Vaswani et al., Attention Is All You Need, NeurIPS 2017 (pre-norm, a small size)
    machine    one GPU, about 5 minutes (H200)
    expected   BLEU 35 to 50 on the test part (no canonical split exists; this one keeps English sentences apart)
    measured   EN-DE 46.2 BLEU, 64.5 chrF; EN-FR 50.5 BLEU, 67.4 chrF (cased, 13a, beam 4; H200, seed 1, 2026-11-15)
    command    regard train translate_tatoeba --out runs/tatoeba-de
               regard train translate_tatoeba data.target=fr --out runs/tatoeba-fr
               regard eval runs/tatoeba-de

About 7.9 million parameters, stored in float16: with its vocabulary under 16 MiB.
"""

from regard.data.parallel import Parallel
from regard.models.transformer import Config
from regard.tasks import translation
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(
            vocab=8000, width=256, heads=8, ffn=896, encoder_layers=4, decoder_layers=3, dropout=0.25, norm="pre"
        ),
        task=translation.Config(smoothing=0.1, beams=4, length_penalty=1.0),
        data=Parallel("tatoeba", "en", "de", style="raw", kind="bytes", vocabulary=8000, tokens=16_384, longest=96),
        train=Train(
            steps=12_000,
            rate=2e-3,
            schedule="cosine",
            warmup=2000,
            clip=1.0,
            decay=0.01,
            ema=0.999,
            average=5,
            evaluate=1000,
            save=1000,
            score=1,
            metric="loss",
            store="float16",
        ),
    )
