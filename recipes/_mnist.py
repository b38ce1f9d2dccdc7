"""What the recipes of MNIST and Fashion-MNIST share: a compact convolutional transformer of grey images."""

from regard.models.cct import Config
from regard.training.recipe import Train

MODEL = Config(
    num_classes=10, image_size=28, channels=1, kernel=3, convolutions=2, width=128, heads=4, layers=4, mlp_ratio=2.0
)
TRAIN = Train(
    learning_rate=1e-3,
    schedule="cosine",
    min_learning_rate_ratio=0.02,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.05,
    eval_interval=2110,
    save_interval=2110,
    log_interval=100,
    metric="accuracy",
)
