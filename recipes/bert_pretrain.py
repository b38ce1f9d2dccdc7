"""A small BERT pre-trained on the available text: masked words and next-sentence prediction.

    task       predict masked words (15 %, 80/10/10), and whether b follows a
    data       Brown, Penn Treebank (without section 20), BBC news, Tatoeba English: 301,885 sentences, 4.6 million
               tokens; without case, WordPiece of 8,000
    licence    Brown: non-commercial; Penn Treebank, BBC: research: the model is not shipped. Tatoeba: CC BY 2.0
    paper      Devlin et al., BERT, NAACL 2019 (8 layers of 384 instead of 12 of 768, rows of 128)
    machine    one GPU, about 5 minutes expected (H200)
    expected   fine-tuned, clearly better than from scratch (bert_sst2, bert_trec); the paper has 3.3 billion words
    measured   with train.steps=6000: 50 % of the hidden words, 87 % of the pairs right on test, 2.75 nats per word
               (seed 1, H200, 2026-11-15)
    command    regard train bert_pretrain --out runs/bert
               regard eval runs/bert

17.6 million parameters. Of SST-2's test sentences 7 of 1,821, and of TREC's 3 of 500, stand in this text too
("isn't it great", "who invented the telephone"): everyday sentences of Tatoeba, without a label.
"""

from _bert import MODEL

from regard.data.text.next_sentence_pairs import NextSentencePairs
from regard.tasks.text import masked_lm
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=MODEL,
        task=masked_lm.Config(),
        data=NextSentencePairs(
            ("brown", "ptb", "bbc", "tatoeba"), max_length=128, batch_size=512, vocab_size=8000, lowercase=True
        ),
        train=Train(
            steps=10_000,
            learning_rate=1e-3,
            schedule="linear",
            warmup_steps=1000,
            betas=(0.9, 0.98),
            eps=1e-6,
            weight_decay=0.05,
            clip_grad_norm=1.0,
            num_workers=4,
            eval_interval=1000,
            save_interval=2500,
            log_interval=100,
            metric="loss",
        ),
    )
