"""What the recipes of point clouds share: the tasks and the settings of training."""

from dataclasses import replace

from regard.tasks.points import point_classification, point_segmentation
from regard.training.recipe import Train

TASK = point_classification.Config(points=1024, rotation="vertical", stretch=0.2, noise=0.01, label_smoothing=0.1)
TRAIN = Train(
    steps=12_000,
    learning_rate=1e-3,
    schedule="cosine",
    warmup_steps=300,
    min_learning_rate_ratio=0.01,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.05,
    clip_grad_norm=1.0,
    eval_interval=1000,
    save_interval=1000,
    log_interval=100,
    metric="accuracy",
)
SEGMENTATION = point_segmentation.Config(points=1024, rotation="vertical", stretch=0.2)
SEGMENTATION_TRAIN = replace(TRAIN, steps=8000, metric="miou")
