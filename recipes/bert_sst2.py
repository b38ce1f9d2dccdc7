"""SST-2: is a sentence from a film review good or bad? A small BERT fine-tuned, or the same one from scratch.

    task       classify sentences as positive or negative
    data       SST-2, whole sentences only: 6,920 to train on, 872 to validate, 1,821 to test
    licence    not stated (research); the model is not shipped
    paper      Devlin et al., BERT, NAACL 2019; Socher et al., Recursive Deep Models, EMNLP 2013
    machine    one GPU, about a minute; runs/bert is made by bert_pretrain
    expected   better than from scratch by a clear margin; BERT-base 93.5 (recalled; 3.3 billion words, 67,000 phrases)
    measured   79.9 % (79.6 to 80.1) against 77.4 % (76.7 to 78.4) from scratch, on test
               (three seeds each, H200, 2026-11-15)
    command    regard train bert_sst2 train.init_from=runs/bert --out runs/sst2
               regard train bert_sst2 --out runs/sst2-scratch
               regard eval runs/sst2

From scratch the vocabulary is that of the training split; everything else is the same.
"""

from dataclasses import replace

from _bert import FINE_TUNING, MODEL

from regard.data.text.labeled_text import LabeledText
from regard.tasks.text import classification
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=MODEL,
        task=classification.Config(),
        data=LabeledText("sst2", max_length=128, batch_size=32, vocab_size=8000, lowercase=True),
        train=replace(FINE_TUNING, steps=1300, warmup_steps=130, eval_interval=216),
    )
