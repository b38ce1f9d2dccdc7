"""What the recipes of one table share: ways to aggregate over space, at equal cost, all trained alike for 40 epochs.

Sizes are chosen so that a forward pass costs about 0.18 billion multiply-adds, as a ResNet-18 of 36 channels
(benchmarks/attention_in_cnns.py counts them). Crops and flips alone, since what helps one model may not help another.
"""

from regard.data.images.image_dataset import ImageDataset
from regard.tasks.image import image_classification
from regard.training.recipe import Recipe, Train

TASK = image_classification.Config(label_smoothing=0.1, augment=("random_crop(padding=4)", "flip"))
TRAIN = Train(
    steps=7_000,
    learning_rate=1e-3,
    schedule="cosine",
    warmup_steps=350,
    min_learning_rate_ratio=0.01,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.05,
    clip_grad_norm=1.0,
    ema_decay=0.999,
    eval_interval=1750,
    save_interval=1750,
    log_interval=100,
    metric="accuracy",
)


def equal_cost(model: object, grayscale: bool = False) -> Recipe:
    """Return the recipe of a model; pixels as tokens read grey images."""
    data = ImageDataset("cifar10", batch_size=256, grayscale=grayscale)
    return Recipe(model=model, task=TASK, data=data, train=TRAIN)
