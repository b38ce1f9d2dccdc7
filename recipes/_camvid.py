"""What the CamVid recipes share: frames of half the size, 11 classes, and one training for all models."""

from regard.data.images.camvid import CamVid
from regard.tasks.image import semantic_segmentation
from regard.training.recipe import Train

DATA = CamVid(image_size=(180, 240), batch_size=8)
TASK = semantic_segmentation.Config(augment=("flip", "random_resized_crop(min_area=0.3)", "color_jitter"))
TRAIN = Train(
    steps=4000,
    compile=False,  # compiling takes longer than it saves
    learning_rate=1e-3,
    schedule="cosine",
    warmup_steps=200,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.05,
    clip_grad_norm=1.0,
    ema_decay=0.998,
    eval_interval=500,
    save_interval=1000,
    log_interval=50,
    metric="miou",
)
