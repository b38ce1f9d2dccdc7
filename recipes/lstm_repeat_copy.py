"""Repeat copy with an LSTM as large as the Neural Turing machine: tried on 20 copies and 20 vectors.

task       bit vectors in, how often to repeat them, the copies out, an end mark (wrong bits per sequence)
data       tapes made when they are asked for, 30,000 to train on (data.synthetic.tapes)
licence    nothing but random bits
paper      Graves, Wayne, Danihelka: Neural Turing Machines. 2014. arXiv:1410.5401 (section 4.2)
machine    one CPU thread
expected   learned more slowly, not beyond the lengths and copies of training (the paper)
measured   wrong bits per sequence, 100 sequences each, on test: 302 of 10 vectors x 10 copies, 691 of 20 x 10, 706 of
           10 x 20, 1,548 of 20 x 20 (3,750 updates, 21 seconds, one CPU thread, seed 1, 2026-11-18; one seed)
command    regard train lstm_repeat_copy --out runs/lstm-repeat-copy
           regard eval runs/lstm-repeat-copy
"""

from regard.data.synthetic.tapes import RepeatCopyTape
from regard.models.lstm import Config
from regard.tasks.memory import tapes
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(hidden=76, layers=2),
        task=tapes.Config(),
        data=RepeatCopyTape(batch_size=8),
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
