"""What the recipes of rendered rooms share: data, task, and one training for all models."""

from regard.data.images.rendered_depth import RenderedDepth
from regard.tasks.image import depth_estimation
from regard.training.recipe import Train

DATA = RenderedDepth(store=True)
TASK = depth_estimation.Config(augment=("flip", "color_jitter"))
TRAIN = Train(
    steps=2000,
    compile=False,  # compiling takes longer than it saves
    learning_rate=2e-3,
    schedule="cosine",
    warmup_steps=100,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.01,
    clip_grad_norm=1.0,
    ema_decay=0.998,
    eval_interval=500,
    save_interval=1000,
    log_interval=20,
    metric="abs_rel",
)
