"""Clothes in composed scenes with a small Segmenter, on a CPU.

task       the class of every pixel: ten pieces of clothing, wall, floor
data       scenes of 64 x 64 pixels, composed from a seed: one to three pieces of Fashion-MNIST over a wall and a floor
licence    Fashion-MNIST: MIT
paper      Strudel et al., Segmenter, ICCV 2021, arXiv:2105.05633
machine    one CPU core; 10,000 updates of 16 scenes
expected   not known yet
measured   not yet
command    regard train scenes_segmenter_cpu --out runs/clothes
           regard segment scene.png --model runs/clothes --draw segments.png
           regard see scene.png --model runs/clothes
"""

from dataclasses import replace

from _scenes import DATA, TRAIN

from regard.models.segmenter import Config
from regard.tasks.image import semantic_segmentation
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(num_outputs=12, image_size=64, patch_size=4, width=96, heads=3, layers=4, decoder_layers=1)
    train = replace(
        TRAIN,
        steps=10_000,
        learning_rate=1e-3,
        weight_decay=0.05,
        clip_grad_norm=1.0,
        eval_interval=1000,
        metric="miou",
    )
    return Recipe(model, semantic_segmentation.Config(augment=("flip",)), DATA, train)
