"""Repeat copy with a DNC: up to 10 copies of up to 10 vectors; tried on 20 copies and 20 vectors.

task       bit vectors in, how often to repeat them, the copies out, an end mark (wrong bits per sequence)
data       tapes made when they are asked for, 30,000 to train on (data.synthetic.tapes)
licence    nothing but random bits
paper      Graves et al.: Hybrid computing using a neural network with dynamic external memory. Nature 538, 2016;
           Csordás, Schmidhuber, ICLR 2019, arXiv:1904.10278 (masking, de-allocation, sharpened links)
machine    one GPU, or an hour of a CPU thread
expected   no number is known for this protocol
measured   not yet
command    regard train dnc_repeat_copy --out runs/dnc-repeat-copy
           regard eval runs/dnc-repeat-copy
"""

from regard.data.synthetic.tapes import RepeatCopyTape
from regard.models.dnc import Config
from regard.tasks.memory import tapes
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(read_heads=1, hidden=100, masking=True, deallocation=True, sharpening=True),
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
