"""What the recipes of composed scenes share: small ones for a CPU, larger ones with emoji for a GPU."""

from dataclasses import replace

from regard.data.images.composed_scenes import Scenes
from regard.training.recipe import Train

DATA = Scenes(image_size=64, batch_size=16, max_objects=3, min_side=0.3, max_side=0.55, eval_examples=200)
TRAIN = Train(
    steps=30_000,
    learning_rate=3e-4,
    schedule="cosine",
    warmup_steps=500,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=1e-4,
    clip_grad_norm=0.1,
    eval_interval=3000,
    save_interval=1000,
    log_interval=50,
    metric="ap",
    device="cpu",
)

GPU_DATA = Scenes(
    image_size=96,
    batch_size=32,
    objects=("fashion_mnist", "emoji"),
    max_objects=4,
    min_side=0.25,
    max_side=0.5,
    train_examples=20_000,
    eval_examples=500,
    store=True,
)
GPU_TRAIN = replace(
    TRAIN,
    steps=30_000,
    compile=False,  # compiling takes longer than it saves
    learning_rate=1e-3,
    warmup_steps=300,
    clip_grad_norm=1.0,
    ema_decay=0.999,
    eval_interval=5000,
    save_interval=5000,
    device="auto",
)
