"""TREC: what kind of answer does a question want? A small BERT fine-tuned, or the same one from scratch.

    task       classify questions into six kinds: abbreviation, description, entity, human, location, number
    data       TREC-6: 4,906 to train on, 546 of the training split for validation, 500 to test
    licence    not stated (research); the model is not shipped
    paper      Devlin et al., BERT, NAACL 2019; Li, Roth, Learning Question Classifiers, COLING 2002
    machine    one GPU, about a minute; runs/bert is made by bert_pretrain
    expected   better than from scratch by a clear margin; Kim 2014 93.6 with word2vec (recalled)
    measured   93.8 % (93.6 to 94.0) against 83.5 % (83.0 to 84.2) from scratch, on test
               (three seeds each, H200, 2026-11-15)
    command    regard train bert_trec train.init_from=runs/bert --out runs/trec
               regard train bert_trec --out runs/trec-scratch
               regard eval runs/trec

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
        data=LabeledText("trec6", max_length=128, batch_size=32, vocab_size=8000, lowercase=True),
        train=replace(FINE_TUNING, steps=1500, warmup_steps=150, eval_interval=153),
    )
