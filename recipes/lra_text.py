"""News articles by topic, byte by byte: up to 4,096 bytes, with any attention by name.

task       classify articles of the BBC: business, entertainment, politics, sport or tech
data       BBC news 2004-2005: 1,692 training, 200 validation and 200 test articles, title and text; 2,200 bytes on
           average, cut at 4,094. Long Range Arena has film reviews (IMDB), which are not at hand
licence    not stated (research); no model is shipped
paper      Tay et al., Long Range Arena, ICLR 2021, arXiv:2011.04006 (text, byte level); Greene, Cunningham 2006 (data)
machine    one GPU; 1.3 million parameters
expected   nothing published at byte level; a quarter of the articles are of the commonest topic
measured   not yet: waits for a GPU (docs/variants.md)
command    regard train lra_text --out runs/text
           regard train lra_text "model.attention=linear" --out runs/text-linear
"""

from dataclasses import replace

from _long_range import ENCODER, TRAIN

from regard.data.text.labeled_text import LabeledText
from regard.tasks.text import classification
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=replace(ENCODER, length=4096, dropout=0.1),
        task=classification.Config(pool="mean"),
        data=LabeledText("bbc", max_length=4096, batch_size=32, tokenizer="bytes", vocab_size=260, lowercase=False),
        train=replace(TRAIN, steps=1000, warmup_steps=100, eval_interval=100),
    )
