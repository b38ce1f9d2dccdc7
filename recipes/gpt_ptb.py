"""The Penn Treebank in pieces of words, with a small GPT: what is left of a byte when four thousand pieces are known.

task       predict the next token of newspaper text
data       ptb: 930,000 words to train on (5.1 MB), 74,000 to validate, 82,000 to test; lower case, rare words <unk>,
           numbers N; 4,000 byte pairs learned from the training split, four bytes each
licence    not stated; nothing trained on it ships
paper      Radford et al., Language Models are Unsupervised Multitask Learners, 2019 (byte pairs, a decoder alone);
           Mikolov et al. 2011 (this cut of the Treebank)
machine    one GPU, a few minutes (H200); 12.2 million parameters
expected   nothing published is counted by the byte; a word of the test split has 5.46 bytes, its space or line end with
           it, so a perplexity a word of 80 (a large LSTM's; remembered, not checked) would be 1.16 bits per byte
measured   3.29 nats per token, 1.177 bits per byte on test (H200, 2026-11-15)
command    regard train gpt_ptb --out runs/ptb
           regard eval runs/ptb --stride 64
"""

from regard.data.text.text_file import TextFile
from regard.models.gpt import Config
from regard.tasks.text import language_modeling
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(
            vocab=4000,
            width=384,
            heads=6,
            layers=6,
            ffn=1536,
            length=256,
            dropout=0.4,
            attention_dropout=0.2,
            bias=False,
            norm_kind="rms",
            qk_norm="rms",
            positions="rotary",
        ),
        task=language_modeling.Config(),
        data=TextFile("ptb", context_length=256, batch_size=64, tokenizer="bytes", vocab_size=4000),
        train=Train(
            steps=3000,
            optimizer="muon",
            learning_rate=2e-3,
            schedule="cosine",
            warmup_steps=100,
            min_learning_rate_ratio=0.01,
            betas=(0.9, 0.99),
            eps=1e-8,
            weight_decay=0.1,
            clip_grad_norm=1.0,
            ema_decay=0.998,
            eval_interval=100,
            save_interval=1000,
            metric="loss",
        ),
    )
