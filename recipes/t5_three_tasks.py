"""One small T5 for three tasks: translate English to German, tell sentiment, summarise news.

task       what is wanted stands in front: "translate English to German: ", "sst2 sentence: ", "summarize: "
data       Multi30k and Tatoeba EN-DE (29,000 and 164,191 pairs), SST-2 sentences (6,920), BBC news (1,692 articles as
           4,755 pieces of 256 words, tested on the first 256); of Tatoeba 60,000 an epoch, of the others all; one
           byte-level BPE of 16,000 for everything
licence    research and education (Multi30k, SST, BBC news): train it here, do not redistribute the model
paper      Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, JMLR 2020
machine    one GPU, about 6 minutes (H200); 26.8 million parameters
expected   36 BLEU on Multi30k test_2016, 40 on Tatoeba, 78 % on SST-2; ROUGE-1 / 2 / L 60 / 50 / 52 on the news if it
           learns to copy, 25 / 5 / 15 if it only learns what news sounds like
measured   41.0 BLEU on Multi30k test_2016, 44.9 on Tatoeba (cased), 79.2 % on SST-2, ROUGE-1 / 2 / L 52.4 / 41.4 / 44.9
           on the news: it copies, but chooses worse than who takes the first 160 words (seed 1, beam 4; 23 minutes of
           an H200 shared with 13 other runs)
command    regard train t5_three_tasks --out runs/t5-three
           regard eval runs/t5-three

The summaries are extractive: the target is those of the reference's sentences that stand in what is read, in its order
(data.text_tasks). Copying the weightier sentences is a thing that attention can learn from 1,692 articles; writing
headlines of five words is not. Without a model, on the same test articles: all that is read scores 62.9 / 55.8 / 57.1,
its first 160 words 60.5 / 49.5 / 51.4; the targets themselves, against the whole references, 81.2 / 81.1 / 81.2.

From weights that have seen more text (recipe t5_pretrain), with their vocabulary:
    regard train t5_three_tasks train.init_from=runs/t5-pretrain --out runs/t5-three-begun

Adafactor, as the paper: T5's queries are small by the √D that its scores lack, and steps in proportion to the weights
suit that. In 300 updates of a model of 0.6 million parameters it came to a validation loss of 3.48 (rate 3e-2), Muon to
3.87 (5e-3), AdamW to 4.23 (2e-3).
"""

from dataclasses import replace

from _t5 import MODEL, TRAIN

from regard.data.text.task_mixture import TaskMixture
from regard.tasks.text import text_to_text
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=replace(MODEL, dropout=0.2),
        task=text_to_text.Config(label_smoothing=0.1, beam_size=4, eval_examples=100),
        data=TaskMixture(
            ("translate", "translate(corpus='tatoeba', name='tatoeba')", "sentiment", "summarize"),
            max_examples_per_task=60_000,
            tokenizer="bytes",
            vocab_size=16_000,
            sentinels=100,
            batch_tokens=16_384,
            max_length=448,
            max_target_length=288,
            pad_to_multiple_of=16,
        ),
        train=replace(TRAIN, ema_decay=0.999, eval_interval=2000, score_interval=1, save_dtype="float16"),
    )
