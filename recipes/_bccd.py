"""What the recipes of blood cells share: data, task, an EfficientNet as backbone, and one training for all models."""

from regard.data.images.coco import BCCD
from regard.models.efficientnet_lite import Config as EfficientNet
from regard.tasks.image import object_detection
from regard.training.recipe import Train

BACKBONE = EfficientNet(num_classes=0)
DATA = BCCD(image_size=(240, 320), batch_size=16)
TASK = object_detection.Config(noised_groups=3, augment=("flip", "affine(degrees=10, scale=0.2)", "color_jitter"))
TRAIN = Train(
    steps=3000,
    compile=False,  # compiling takes longer than it saves
    learning_rate=5e-4,
    schedule="cosine",
    warmup_steps=200,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=1e-4,
    clip_grad_norm=1.0,
    ema_decay=0.998,
    eval_interval=500,
    save_interval=1000,
    log_interval=50,
    metric="ap50",
    save_dtype="float16",
)
