"""Tatoeba EN-DE (or EN-FR): the translators that ship with the package, for everyday sentences.

    task       translate short everyday sentences, English to German (data.target=fr for French)
    data       Tatoeba (manythings.org/anki), 164,191 EN-DE, 136,986 EN-FR pairs; cased; joint byte-level BPE of 8,000
    licence    CC BY 2.0 (tatoeba.org, www.manythings.org/anki): the model may be shipped with that attribution
    paper      Vaswani et al., Attention Is All You Need, NeurIPS 2017 (pre-norm, a small size)
    machine    one GPU, about 5 minutes (H200)
    expected   BLEU 35 to 50 on the test split (no canonical split exists; this one keeps English sentences apart)
    measured   EN-DE 46.2 BLEU, 64.5 chrF; EN-FR 50.5 BLEU, 67.4 chrF (cased, 13a, beam 4; H200, seed 1, 2026-11-15)
    command    regard train transformer_tatoeba --out runs/tatoeba-de
               regard train transformer_tatoeba data.target=fr --out runs/tatoeba-fr
               regard eval runs/tatoeba-de

What ships was trained on for what people type by transformer_tatoeba_finetune, from these weights.
About 7.9 million parameters, stored in float16: with its vocabulary under 16 MiB.
"""

from regard.data.text.parallel_corpus import ParallelCorpus
from regard.models.transformer import Config
from regard.tasks.text import translation
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(
            vocab=8000, width=256, heads=8, ffn=896, encoder_layers=4, decoder_layers=3, dropout=0.25, norm="pre"
        ),
        task=translation.Config(label_smoothing=0.1, beam_size=4, length_penalty=1.0),
        data=ParallelCorpus(
            "tatoeba", "en", "de", style="raw", tokenizer="bytes", vocab_size=8000, batch_tokens=16_384, max_length=96
        ),
        train=Train(
            steps=12_000,
            learning_rate=2e-3,
            schedule="cosine",
            warmup_steps=2000,
            clip_grad_norm=1.0,
            weight_decay=0.01,
            ema_decay=0.999,
            average_checkpoints=5,
            eval_interval=1000,
            save_interval=1000,
            score_interval=1,
            metric="loss",
            save_dtype="float16",
        ),
    )
