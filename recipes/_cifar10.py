"""What the CIFAR-10 recipes share: Compact-Transformers' training of CCT-7/3x1, 100 epochs of 256 images a batch."""

from regard.data.images.image_dataset import ImageDataset
from regard.tasks.image import image_classification
from regard.training.recipe import Train

DATA = ImageDataset("cifar10", batch_size=256)
TASK = image_classification.Config(
    label_smoothing=0.1,
    augment=(
        "random_resized_crop(min_area=0.8)",
        "flip",
        "randaugment(num_ops=2, magnitude=9, magnitude_std=0.5, p=0.5)",
    ),
    mixup=0.8,
    cutmix=1.0,
    mix_until=10_200,
)
TRAIN = Train(
    steps=17_500,
    learning_rate=8e-4,
    schedule="cosine",
    warmup_steps=1000,
    min_learning_rate_ratio=0.02,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.06,
    ema_decay=0.9995,
    eval_interval=1750,
    save_interval=1750,
    log_interval=100,
    metric="accuracy",
)
