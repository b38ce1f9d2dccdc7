"""bAbI 1 to 3: where is Mary? Find the start and end of the answer in the story.

    task       find the answer to a question in a story (one, two and three supporting facts)
    data       bAbI 10k: 18,900 questions to train on, 2,100 of the training split for validation, 3,000 to test
               (of task 3 only 1,000 training questions are available)
    licence    CC BY 3.0 (Facebook, 2015)
    paper      Devlin et al., BERT, NAACL 2019 (section 4.2); Weston et al. 2015
    machine    one GPU, about 6 minutes
    expected   task 1 solved; MemN2N has 1.00, 0.83, 0.54 of tasks 1 to 3 from 1,000 questions each (domluna/memn2n)
    measured   52.9 % of the test answers, 78.6 % of the validation's, which has fewer of task 3 (H200, 2026-11-15)
    command    regard train bert_babi --out runs/babi
               regard eval runs/babi
               regard train bert_babi "data.tasks=(1,)" --out runs/babi-1

From scratch: its 160 words are all in its own stories. Rows of 384 tokens hold all stories but a few of task 3, which
are read in windows.
"""

from regard.data.text.question_answering import QuestionAnswering
from regard.models.bert import Config
from regard.tasks.text import extractive_qa
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=200, width=256, heads=8, layers=4, length=384, dropout=0.1, attention_dropout=0.1),
        task=extractive_qa.Config(max_answer_tokens=4),
        data=QuestionAnswering("babi", (1, 2, 3), "10k", max_length=384, batch_size=64, vocab_size=300, lowercase=True),
        train=Train(
            steps=12_000,
            learning_rate=5e-4,
            schedule="cosine",
            warmup_steps=1000,
            betas=(0.9, 0.98),
            eps=1e-6,
            weight_decay=0.01,
            clip_grad_norm=1.0,
            eval_interval=1000,
            save_interval=4000,
            log_interval=100,
            metric="exact_match",
        ),
    )
