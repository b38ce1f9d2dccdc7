"""Binary addition with a Neural GPU: learned from numbers of up to 20 digits, tried on longer ones.

task       two binary numbers in, their sum out (task.tries sums of each length are tried)
data       sums made when they are asked for, from 3 digits on, one more with every epoch (data.arithmetic)
licence    nothing but numbers
paper      Kaiser, Sutskever: Neural GPUs Learn Algorithms. ICLR 2016. arXiv:1511.08228
machine    one CPU thread
expected   all sums right, up to the lengths trained on and beyond (the paper: no errors up to 2,000 digits, for the
           best of many runs, with tricks that are left out here)
measured   not measured yet
command    regard train neural_gpu_addition --out runs/neural-gpu
           regard eval runs/neural-gpu
"""

from regard.data.arithmetic import Arithmetic
from regard.models.neural_gpu import Config
from regard.tasks import arithmetic
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=7, width=24, rows=2, layers=2, writer="image", spare=2.0, dropout=0.05),
        task=arithmetic.Config(),
        data=Arithmetic(base=2, digits=20, rows=32, batches=60, longer=(20, 40, 100, 200)),
        train=Train(
            steps=3000,
            rate=5e-3,
            schedule="cosine",
            warmup=50,
            betas=(0.9, 0.98),
            eps=1e-5,
            clip=1.0,
            evaluate=300,
            save=1000,
            metric="loss",
            compile=False,  # a loop as long as the input
        ),
    )
