"""What the recipes of ImageGPT share: grey CIFAR-10, 1,024 pixels of 16 levels of grey."""

from regard.data.images.image_dataset import ImageDataset
from regard.models.image_gpt import SIZES, Config
from regard.training.recipe import Train

MODEL = Config(**SIZES["grey"])
DATA = ImageDataset("cifar10", grayscale=True, batch_size=64)
TRAIN = Train(
    steps=20_000,
    learning_rate=1e-3,
    schedule="cosine",
    warmup_steps=500,
    min_learning_rate_ratio=0.02,
    betas=(0.9, 0.95),
    eps=1e-8,
    weight_decay=0.01,
    clip_grad_norm=1.0,
    ema_decay=0.999,
    eval_interval=2000,
    save_interval=2000,
    metric="bits_per_dim",
)
