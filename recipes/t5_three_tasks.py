"""One small T5 for three tasks: translate English to German, tell sentiment, summarise news.

task       what is wanted stands in front: "translate English to German: ", "sst2 sentence: ", "summarize: "
data       Multi30k and Tatoeba EN-DE (29,000 and 164,191 pairs), SST-2 sentences (6,920), BBC news (1,692 articles, cut
           to 256 words, and those sentences of their extractive summaries that stand in them)
licence    research and education (Multi30k, SST, BBC news): train it here, do not redistribute the model
paper      Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, JMLR 2020
machine    one GPU, about 6 minutes (H200); 25 million parameters
expected   36 BLEU on Multi30k test_2016, 40 on Tatoeba, 78 % on SST-2, ROUGE-1 / 2 / L 55 / 40 / 40 on the news
measured   not measured yet
command    regard train t5_three_tasks --out runs/t5-three
           regard eval runs/t5-three

Why sentences of the article and not its headline: 1,692 headlines of five words are too few to learn to write one,
while copying the weightier sentences is a thing that attention does. Pre-trained weights (recipe t5_pretrain):
    regard train t5_three_tasks train.begin=runs/t5-pretrain --out runs/t5-three-begun
"""

from regard.data.mixture import Mixture
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
            dropout=0.2,
            attention_dropout=0.0,
            activation_dropout=0.0,
            feed="geglu_tanh",
        ),
        task=text_to_text.Config(smoothing=0.1, beams=4, looks=100),
        data=Mixture(
            ("translate", "translate(corpus='tatoeba', name='tatoeba')", "sentiment", "summarise"),
            temperature=2.0,
            kind="bytes",
            vocabulary=16_000,
            sentinels=100,
            tokens=16_384,
            longest=448,
            longest_target=288,
            multiple=16,
        ),
        train=Train(
            steps=9000,
            rate=1e-3,
            schedule="cosine",
            warmup=1000,
            floor=0.02,
            betas=(0.9, 0.98),
            eps=1e-8,
            decay=0.01,
            clip=1.0,
            ema=0.999,
            evaluate=1500,
            save=1500,
            score=1,
            metric="loss",
            store="float16",
        ),
    )
