"""What the recipes of DRAW on binarised MNIST share."""

from regard.data.images.binarized_images import BinarizedImages
from regard.training.recipe import Train

DATA = BinarizedImages()
TRAIN = Train(
    steps=150_000,
    learning_rate=1e-3,
    schedule="cosine",
    warmup_steps=500,
    min_learning_rate_ratio=0.02,
    betas=(0.9, 0.999),
    eps=1e-8,
    clip_grad_norm=10.0,
    ema_decay=0.999,
    eval_interval=5000,
    save_interval=5000,
    metric="bound",
)
