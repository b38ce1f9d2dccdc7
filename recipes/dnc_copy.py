"""Copying with a DNC: learned from tapes of 1 to 20 vectors, tried on tapes of up to 120.

task       bit vectors in, an end mark, the same vectors out (wrong bits per sequence; by chance 4 of a vector)
data       tapes made when they are asked for, 30,000 to train on (data.synthetic.tapes)
licence    nothing but random bits
paper      Graves et al.: Hybrid computing using a neural network with dynamic external memory. Nature 538, 2016;
           Csordás, Schmidhuber, ICLR 2019, arXiv:1904.10278 (masking, de-allocation, sharpened links)
machine    one GPU, or an hour of a CPU thread
expected   no number is known for this protocol
measured   not yet
command    regard train dnc_copy --out runs/dnc-copy
           regard eval runs/dnc-copy
"""

from regard.data.synthetic.tapes import CopyTape
from regard.models.dnc import Config
from regard.tasks.memory import tapes
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(read_heads=1, hidden=100, masking=True, deallocation=True, sharpening=True),
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
