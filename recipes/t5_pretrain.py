"""T5 before any task: running text of which 15 % is taken out, in spans of three tokens, to be written down.

task       the pieces that were taken out, each after the sentinel that stands for it
data       BBC news, Brown, Penn Treebank, and both sides of Multi30k and Tatoeba EN-DE: the training parts
licence    research and education (BBC news, PTB, Multi30k): train it here, do not redistribute the model
paper      Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, JMLR 2020
machine    one GPU, about 5 minutes (H200); 26.8 million parameters, those of t5_three_tasks
expected   3 nats per token of the validation text (guessed: German and English, news and captions, no published number)
measured   not measured yet
command    regard train t5_pretrain --out runs/t5-pretrain
           regard eval runs/t5-pretrain

Then: regard train t5_three_tasks train.init_from=runs/t5-pretrain --out runs/t5-three-begun
"""

from dataclasses import replace

from _t5 import MODEL, TRAIN

from regard.data.text.span_corruption import SpanCorruption
from regard.tasks.text import text_to_text
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=MODEL,
        task=text_to_text.Config(),
        data=SpanCorruption(
            ("bbc", "brown", "ptb", "translate", "translate(corpus='tatoeba')"),
            noise_density=0.15,
            mean_span_length=3.0,
            context_length=256,
            batch_size=96,
            tokenizer="bytes",
            vocab_size=16_000,
            sentinels=100,
        ),
        train=replace(TRAIN, eval_interval=1000, score_interval=0),
    )
