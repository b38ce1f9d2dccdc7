"""T5 before any task: running text of which 15 % is taken out, in spans of three tokens, to be written down.

task       the pieces that were taken out, each after the sentinel that stands for it
data       BBC news, Brown, Penn Treebank, and both sides of Multi30k and Tatoeba EN-DE: the training parts
licence    research and education (BBC news, PTB, Multi30k): train it here, do not redistribute the model
paper      Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, JMLR 2020
machine    one GPU, about 5 minutes (H200); 26.8 million parameters, those of t5_three_tasks
expected   3 nats a token of the validation text (guessed: German and English, news and captions, no published number)
measured   not measured yet
command    regard train t5_pretrain --out runs/t5-pretrain
           regard eval runs/t5-pretrain

Then: regard train t5_three_tasks train.begin=runs/t5-pretrain --out runs/t5-three-begun
"""

from regard.data.spans import Spans
from regard.models.t5 import Config
from regard.tasks import text_to_text
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(
            vocab=16_100,
            width=384,
            heads=6,
            depth=64,
            ffn=1024,
            encoder_layers=5,
            decoder_layers=5,
            dropout=0.1,
            attention_dropout=0.0,
            activation_dropout=0.0,
            feed="geglu_tanh",
        ),
        task=text_to_text.Config(),
        data=Spans(
            ("bbc", "brown", "ptb", "translate", "translate(corpus='tatoeba')"),
            noise=0.15,
            mean=3.0,
            context=256,
            rows=96,
            kind="bytes",
            vocabulary=16_000,
            sentinels=100,
        ),
        train=Train(
            steps=8000,
            optimiser="adafactor",
            rate=2e-2,
            schedule="cosine",
            warmup=800,
            floor=0.01,
            clip=1.0,
            evaluate=1000,
            save=2000,
            score=0,
            metric="loss",
        ),
    )
