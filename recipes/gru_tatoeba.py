"""Tatoeba EN-DE with a GRU and additive attention, trained on one CPU core: the model that ships as gru-additive.

task       translate short everyday sentences, English to German
data       Tatoeba (manythings.org/anki), 164,191 pairs; cased; joint byte-level BPE of 4,000
licence    CC BY 2.0 (tatoeba.org, www.manythings.org/anki): the model may be shipped with that attribution
paper      Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate. ICLR 2015
machine    one CPU core, about half an hour (3,460 target tokens a second of its time on a busy one, 5.7 million in all)
expected   sentences that can be understood; below the Transformer that ships as en-de (46.2 BLEU, a GPU)
measured   32.4 BLEU on the test split (beam 4, seed 1; 42 minutes on one thread of a busy CPU, 2026-11-15)
command    OMP_NUM_THREADS=1 regard train gru_tatoeba --out runs/gru-tatoeba
           regard eval runs/gru-tatoeba

About 2.7 million parameters; what ships is stored in int8, 2.9 MiB with its vocabulary.
"""

from regard.data.text.parallel_corpus import ParallelCorpus
from regard.models.rnnsearch import Config
from regard.tasks.text import translation
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=4000, width=192, hidden=256, align_width=128, readout=None, dropout=0.1, tied=True),
        task=translation.Config(label_smoothing=0.1, beam_size=4, length_penalty=1.0),
        data=ParallelCorpus(
            "tatoeba",
            "en",
            "de",
            style="raw",
            tokenizer="bytes",
            vocab_size=4000,
            batch_tokens=1024,
            max_length=48,
            pad_to_multiple_of=1,
        ),
        train=Train(
            steps=5600,
            device="cpu",
            learning_rate=1.5e-3,
            schedule="cosine",
            warmup_steps=300,
            clip_grad_norm=1.0,
            ema_decay=0.998,
            eval_interval=1400,
            save_interval=1400,
            score_interval=0,
            metric="loss",
            save_dtype="float16",
        ),
    )
