"""Binary addition with a Neural GPU: learned from numbers of up to 20 digits, tried on longer ones.

task       two binary numbers in, their sum out (task.eval_examples sums of each length are tried)
data       sums made when they are asked for, from 3 digits on, one more with every epoch (data.arithmetic)
licence    nothing but numbers
paper      Kaiser, Sutskever: Neural GPUs Learn Algorithms. ICLR 2016. arXiv:1511.08228
machine    one CPU thread
expected   all sums right, up to the lengths trained on and beyond (the paper: no errors up to 2,000 digits, for the
           best of many runs, with tricks that are left out here)
measured   200 of 200 sums right at 20, at 40, at 100 and at 200 digits (1,500 updates, one thread of a busy CPU, 12
           minutes, seed 1, 2026-11-15; one seed)
command    regard train neural_gpu_addition --out runs/neural-gpu
           regard eval runs/neural-gpu
"""

from regard.data.synthetic.arithmetic import Arithmetic
from regard.models.neural_gpu import Config
from regard.tasks.text import arithmetic
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=7, width=24, rows=2, layers=2, decoder="image", length_offset=2.0, dropout=0.05),
        task=arithmetic.Config(),
        data=Arithmetic(base=2, digits=20, batch_size=32, batches_per_epoch=60, test_digits=(20, 40, 100, 200)),
        train=Train(
            steps=1500,
            learning_rate=5e-3,
            schedule="cosine",
            warmup_steps=50,
            betas=(0.9, 0.98),
            eps=1e-5,
            clip_grad_norm=1.0,
            eval_interval=300,
            save_interval=1000,
            metric="loss",
            compile=False,  # a loop as long as the input
        ),
    )
