"""What the CamVid recipes share: frames of half the size, 11 classes, and one training for all models."""

from regard.data.images.camvid import CamVid
from regard.tasks.image import semantic_segmentation
from regard.training.recipe import Train

DATA = CamVid(image_size=(180, 240), batch_size=8)
TASK = semantic_segmentation.Config(augment=("flip", "affine(degrees=5)", "color_jitter"))
TRAIN = Train(
    steps=4000,
    learning_rate=1e-3,
    schedule="cosine",
    warmup_steps=200,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.05,
    clip_grad_norm=1.0,
    eval_interval=200,
    save_interval=200,
    log_interval=20,
    metric="miou",
)
