"""What the recipes of the Image Transformer on MNIST share."""

from regard.data.images.image_dataset import ImageDataset
from regard.models.image_transformer import SIZES, Config
from regard.training.recipe import Train

MODEL = Config(**SIZES["mnist"])
DATA = ImageDataset("mnist", batch_size=64)
TRAIN = Train(
    steps=50_000,
    learning_rate=5e-4,
    schedule="cosine",
    warmup_steps=2000,
    min_learning_rate_ratio=0.02,
    betas=(0.9, 0.98),
    eps=1e-9,
    weight_decay=0.01,
    clip_grad_norm=1.0,
    ema_decay=0.999,
    eval_interval=5000,
    save_interval=5000,
    metric="bits_per_dim",
)
