"""Depth of rendered rooms with a small U-Net: the baseline of DPT.

task       the relative depth of every pixel of one image
data       rooms rendered from a seed with exact depth, 128 x 96 pixels
licence    made here
paper      Ranftl et al., MiDaS, TPAMI 2022, arXiv:1907.01341 (the loss); Ronneberger et al., U-Net, MICCAI 2015
machine    one CPU core
expected   not known yet
measured   not to the end yet; with data.image_size=48,64 data.train_examples=400 model.scales=4 train.steps=300
           train.warmup_steps=20: AbsRel 0.165, δ1 72.9 % on validation (2026-11-18, 2 minutes of one core); a constant
           has AbsRel 0.33
command    regard train rendered_unet --out runs/rooms
           regard depth room.jpg --model runs/rooms --draw depth.png
"""

from _rendered import DATA, TASK, TRAIN

from regard.models.unet import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(Config(num_outputs=1, width=16, scales=5), TASK, DATA, TRAIN)
