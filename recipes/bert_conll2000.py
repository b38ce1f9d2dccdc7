"""CoNLL-2000: chunking by tagging, with a small BERT.

    task       tag each word with the chunk that it begins or continues (22 tags)
    data       CoNLL-2000: 8,042 sentences to train on, 894 of the training split for validation, 2,012 to test
    licence    not stated (research); the model is not shipped
    paper      Devlin et al., BERT, NAACL 2019 (figure 4 d); Tjong Kim Sang, Buchholz, CoNLL 2000
    machine    one GPU, about two minutes; runs/bert is made by bert_pretrain
    expected   chunk F1 around 93; support vector machines and CRFs 93.5 to 94.3, Flair 96.7 (recalled)
    measured   94.5 chunk F1 on test (seed 1, H200, 2026-11-15)
    command    regard train bert_conll2000 train.init_from=runs/bert --out runs/conll2000
               regard train bert_conll2000 --out runs/conll2000-scratch
               regard eval runs/conll2000

The test split is section 20 of the Wall Street Journal, which bert_pretrain leaves out of its text. The training split,
sections 15 to 18, is in that text, without its tags. data.column=1 gives parts of speech instead.
"""

from dataclasses import replace

from _bert import FINE_TUNING, MODEL

from regard.data.text.tagged_sentences import TaggedSentences
from regard.tasks.text import tagging
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=MODEL,
        task=tagging.Config(),
        data=TaggedSentences("conll2000", column=2, max_length=128, batch_size=32, vocab_size=8000, lowercase=True),
        train=replace(FINE_TUNING, steps=2500, learning_rate=2e-4, warmup_steps=250, eval_interval=500, metric="f1"),
    )
