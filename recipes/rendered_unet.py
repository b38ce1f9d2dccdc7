"""Depth of rendered rooms with a small U-Net: the baseline of DPT.

task       the relative depth of every pixel of one image
data       rooms rendered from a seed with exact depth, 128 x 96 pixels
licence    made here
paper      Ranftl et al., MiDaS, TPAMI 2022, arXiv:1907.01341 (the loss); Ronneberger et al., U-Net, MICCAI 2015
machine    one CPU core
expected   not known yet
measured   not to the end yet; with 64 x 48 pixels, model.scales=4 and 100 updates AbsRel 0.33, δ1 35 % on validation
           (2026-11-18, one core of a busy machine)
command    regard train rendered_unet --out runs/rooms
           regard depth room.jpg --model runs/rooms --draw depth.png
"""

from regard.data.images.rendered_depth import RenderedDepth
from regard.models.unet import Config
from regard.tasks.image import depth_estimation
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    train = Train(
        steps=2000,
        learning_rate=2e-3,
        schedule="cosine",
        warmup_steps=100,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0.01,
        clip_grad_norm=1.0,
        eval_interval=200,
        save_interval=200,
        log_interval=20,
        metric="abs_rel",
    )
    task = depth_estimation.Config(augment=("flip", "color_jitter"))
    return Recipe(Config(num_outputs=1, width=16, scales=5), task, RenderedDepth(), train)
