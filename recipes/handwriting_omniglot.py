"""Letters that do not exist: a pen that writes on without a text, learned from the drawings of 50 alphabets.

task       write lines of characters as pen offsets, without a text
data       Omniglot as strokes, simplified (sketch-rnn's): 30,000 drawings to train on, 1,000 each for val and test
licence    that of the original Omniglot repository (MIT, as recalled, not checked)
paper      Graves, Generating Sequences With Recurrent Neural Networks, 2013, arXiv:1308.0850, section 4 (its size)
machine    one GPU, 15 minutes (H200, shared with ten other runs)
expected   strokes of a plausible length, closed bows and characters of one size; no number to compare with
measured   -0.628 nats per point on the test split, -0.663 on validation, best after 10,000 of 12,000 updates (seed 1);
           model.hidden=200 data.batch_size=64 train.steps=4000 on one core of a CPU, an hour: -0.424 (0.9 million
           parameters)
command    regard train handwriting_omniglot --out runs/omniglot
           regard eval runs/omniglot
           regard train handwriting_omniglot --out runs/small model.hidden=96 train.steps=500 train.device=cpu
"""

from regard.data.strokes.handwriting import HandwritingLines
from regard.models.handwriting import Config
from regard.tasks.strokes import handwriting
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=0, hidden=400, mixtures=20, dropout=0.1),
        task=handwriting.Config(),
        data=HandwritingLines("omniglot", spacing=0.0, unit=0.2, max_length=6, lines_per_epoch=30_000, batch_size=128),
        train=Train(
            steps=12_000,
            learning_rate=2e-3,
            schedule="cosine",
            warmup_steps=500,
            min_learning_rate_ratio=0.02,
            betas=(0.9, 0.98),
            eps=1e-8,
            weight_decay=0.01,
            clip_grad_norm=1.0,
            ema_decay=0.999,
            eval_interval=1000,
            save_interval=1000,
            metric="loss",
            precision="float32",  # the LSTMs stay in float32 under autocast too: it would gain next to nothing
            compile=False,
            save_dtype="float16",
        ),
    )
