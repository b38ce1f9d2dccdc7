"""Copying with an LSTM as large as the Neural Turing machine's: learned from 1 to 20 vectors, tried on up to 120.

task       bit vectors in, an end mark, the same vectors out (wrong bits per sequence; by chance 4 of a vector)
data       tapes made when they are asked for, 30,000 to train on (data.synthetic.tapes)
licence    nothing but random bits
paper      Graves, Wayne, Danihelka: Neural Turing Machines. 2014. arXiv:1410.5401 (section 4.1)
machine    one CPU thread
expected   short tapes learned slowly, long ones not at all (the paper's figure 3)
measured   wrong bits per sequence, 100 sequences each, on test: 49 of 20 vectors, 134 of 40, 297 of 80, 458 of 120
           (3,750 updates, 13 seconds, one thread of a busy CPU, seed 1, 2026-11-18; one seed)
command    regard train lstm_copy --out runs/lstm-copy
           regard eval runs/lstm-copy
"""

from regard.data.synthetic.tapes import CopyTape
from regard.models.lstm import Config
from regard.tasks.memory import tapes
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(hidden=76, layers=2),  # 74,000 parameters; the machine has 63,000
        task=tapes.Config(),
        data=CopyTape(batch_size=8),
        train=Train(
            precision="float32",
            steps=3750,  # 30,000 sequences
            learning_rate=3e-3,
            schedule="constant",
            warmup_steps=0,
            betas=(0.9, 0.98),
            eps=1e-8,
            clip_grad_norm=1.0,
            eval_interval=250,
            save_interval=1250,
            metric="loss",  # wrong bits are 0 on short tapes long before the end
            compile=False,  # a loop as long as the input
        ),
    )
