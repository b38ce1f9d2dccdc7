"""Chunks of the Wall Street Journal by writing sentences down with brackets: parsing as translation.

task       words in, "(NP He ) (VP reckons ) (NP the current account deficit ) ..." out; F1 of whole chunks
data       conll2000 (WSJ sections 15-18 and 20): 8,936 sentences, a tenth of them held out for validation; 2,012
           to test
licence    not stated: nothing that was trained on it ships
paper      Vinyals et al., Grammar as a Foreign Language, 2015, arXiv:1412.7449; Tjong Kim Sang, Buchholz 2000
machine    one H200, 2 to 3 minutes
expected   F1 above 91 from words alone, above 93 with parts of speech (data.pos_column=1), as the shared task gave them
measured   85.8 chunk F1 on test, 87.6 on validation (H200, 2026-11-15); tagging does it with 94.5
command    regard train transformer_conll2000 --out runs/chunks
           regard eval runs/chunks --split test
           regard train transformer_conll2000 --out runs/chunks-pos data.pos_column=1
"""

from regard.data.text.chunking_seq2seq import ChunkingSeq2Seq
from regard.models.transformer import Config
from regard.tasks.text import chunking
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(
            vocab=6000,
            width=256,
            heads=8,
            ffn=1024,
            encoder_layers=3,
            decoder_layers=3,
            dropout=0.15,
            attention_dropout=0.0,
            norm="pre",
        ),
        task=chunking.Config(),
        data=ChunkingSeq2Seq("conll2000"),
        train=Train(
            steps=6000,
            optimizer="muon",
            learning_rate=3e-3,
            schedule="cosine",
            warmup_steps=200,
            betas=(0.9, 0.98),
            eps=1e-9,
            weight_decay=0.01,
            clip_grad_norm=1.0,
            ema_decay=0.999,
            eval_interval=1000,
            save_interval=1000,
            metric="f1",
        ),
    )
