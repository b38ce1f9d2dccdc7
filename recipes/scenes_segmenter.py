"""Clothes and emoji in composed scenes with a small Segmenter, small enough to ship.

task       the class of every pixel: ten pieces of clothing, ten emoji, wall, floor
data       scenes of 96 x 96 pixels, composed from a seed: one to four of Fashion-MNIST and emoji over wall and floor
licence    Fashion-MNIST: MIT; Noto Emoji: Apache-2.0
paper      Strudel et al., Segmenter, ICCV 2021, arXiv:2105.05633; the stem: Dosovitskiy et al., ICLR 2021 (hybrid)
machine    one GPU; 30,000 updates of 32 scenes
expected   not known: nobody else has these scenes
measured   mIoU 56.9 %, pixel accuracy 93.6 % on test after 2,989 of the 30,000 updates (train.budget_minutes=3.2,
           seed 1, a shared H200, 2026-11-19); ships as scene-segments; the whole recipe was not run
command    regard train scenes_segmenter --out runs/clothes
           regard segment scene.png --model runs/clothes --draw segments.png
           regard see scene.png --model runs/clothes
"""

from dataclasses import replace

from _scenes import GPU_DATA, GPU_TRAIN

from regard.models.segmenter import Config
from regard.tasks.image import semantic_segmentation
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(
        num_outputs=22,
        image_size=96,
        patch_size=1,
        stem="hybrid(layers=(2,), base=32)",
        width=96,
        heads=3,
        layers=4,
        decoder_layers=1,
        drop_path=0.0,
    )
    task = semantic_segmentation.Config(augment=("flip", "color_jitter(hue=0.05)"))
    train = replace(GPU_TRAIN, weight_decay=0.05, metric="miou", save_dtype="float16")
    return Recipe(model, task, GPU_DATA, train)
