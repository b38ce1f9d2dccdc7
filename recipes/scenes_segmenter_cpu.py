"""Clothes and emoji in composed scenes with a small Segmenter, on a CPU.

task       the class of every pixel: ten pieces of clothing, ten emoji, wall, floor
data       scenes of 64 x 64 pixels, composed from a seed: one to three of Fashion-MNIST and emoji over wall and floor
licence    Fashion-MNIST: MIT; Noto Emoji: Apache-2.0
paper      Strudel et al., Segmenter, ICCV 2021, arXiv:2105.05633; the stem: Dosovitskiy et al., ICLR 2021 (hybrid)
machine    one CPU core; 2,400 updates of 16 scenes
expected   not known: nobody else has these scenes
measured   train.steps=1300, seed 1, 7 minutes on one CPU thread, 2026-11-18: mIoU 46.1 % on 200 test scenes (validation
           45.5 %), 92.0 % of the pixels; it knows emoji and takes one piece of clothing for another: too weak to ship
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
    model = Config(
        num_outputs=22,
        image_size=64,
        patch_size=1,
        stem="hybrid(layers=(1,), base=32)",
        width=96,
        heads=3,
        layers=4,
        decoder_layers=1,
    )
    train = replace(
        TRAIN,
        steps=2400,
        learning_rate=1e-3,
        warmup_steps=100,
        weight_decay=0.05,
        clip_grad_norm=1.0,
        eval_interval=600,
        save_interval=300,
        metric="miou",
        save_dtype="float16",
    )
    data = replace(DATA, objects=("fashion_mnist", "emoji"))
    return Recipe(model, semantic_segmentation.Config(augment=("flip",)), data, train)
