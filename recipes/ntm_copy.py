"""Copying with a Neural Turing machine: learned from tapes of 1 to 20 vectors, tried on tapes of up to 120.

task       bit vectors in, an end mark, the same vectors out (wrong bits per sequence; by chance 4 of a vector)
data       tapes made when they are asked for, 30,000 to train on (data.synthetic.tapes)
licence    nothing but random bits
paper      Graves, Wayne, Danihelka: Neural Turing Machines. 2014. arXiv:1410.5401 (section 4.1)
machine    one CPU thread
expected   no wrong bits up to 80 vectors (public reproductions, within 30,000 sequences)
measured
command    regard train ntm_copy --out runs/ntm-copy
           regard eval runs/ntm-copy
"""

from regard.data.synthetic.tapes import CopyTape
from regard.models.ntm import Config
from regard.tasks.memory import tapes
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(),
        task=tapes.Config(),
        data=CopyTape(batch_size=4),
        train=Train(
            steps=7500,  # 30,000 sequences
            learning_rate=2e-3,
            schedule="cosine",
            warmup_steps=50,
            betas=(0.9, 0.98),
            eps=1e-8,
            clip_grad_norm=0.1,  # the norms while learning; a larger one would let a run jump away from its solution
            eval_interval=500,
            save_interval=2500,
            metric="loss",  # wrong bits are 0 on short tapes long before the end
            compile=False,  # a loop as long as the input
        ),
    )
