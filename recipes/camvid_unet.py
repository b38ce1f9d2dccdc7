"""CamVid with a U-Net: the baseline of the dense Transformers, by the same recipe.

task       the class of every pixel of road scenes, 11 classes
data       CamVid, 367 training, 101 validation and 233 test frames, resized to 240 x 180
licence    CamVid's licence does not allow it, so no model is shipped
paper      Ronneberger et al., U-Net, MICCAI 2015, arXiv:1505.04597
machine    one GPU; 4,000 updates of 8 frames
expected   not known yet
measured   mIoU 51.4 % on test, 62.1 % on validation, pixel accuracy 87.0 % on test (seed 1, 1 minute of a shared H200,
           2026-11-19)
command    regard train camvid_unet --out runs/camvid-unet
           regard segment frame.jpg --model runs/camvid-unet --draw segments.png
"""

from _camvid import DATA, TASK, TRAIN

from regard.models.unet import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(Config(num_outputs=11, width=24), TASK, DATA, TRAIN)
