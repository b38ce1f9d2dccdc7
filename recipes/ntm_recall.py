"""Associative recall with a Neural Turing machine: learned from 2 to 6 items, tried on up to 20.

task       items of three vectors in, one of them again, the item after it out (wrong bits per sequence)
data       tapes made when they are asked for, 30,000 to train on (data.synthetic.tapes)
licence    nothing but random bits
paper      Graves, Wayne, Danihelka: Neural Turing Machines. 2014. arXiv:1410.5401 (section 4.3)
machine    one CPU thread
expected   none to few wrong bits up to 12 items (the paper, feed-forward controller)
measured   wrong bits per sequence (of 18), 100 sequences each, on test: 0 of 6, 10 and 15 items, 6.8 of 20 (3,750
           updates, 4 minutes, one CPU thread, seed 1, 2026-11-18; one seed)
command    regard train ntm_recall --out runs/ntm-recall
           regard eval runs/ntm-recall
"""

from regard.data.synthetic.tapes import RecallTape
from regard.models.ntm import Config
from regard.tasks.memory import tapes
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(read_heads=4, write_heads=4),
        task=tapes.Config(),
        data=RecallTape(batch_size=8),
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
