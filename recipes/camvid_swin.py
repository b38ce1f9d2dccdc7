"""CamVid with a Swin Transformer and a pyramid head, from scratch.

task       the class of every pixel of road scenes, 11 classes
data       CamVid, 367 training, 101 validation and 233 test frames, resized to 240 x 180
licence    CamVid's licence does not allow it, so no model is shipped
paper      Liu et al., Swin Transformer, ICCV 2021, arXiv:2103.14030
machine    one GPU; 4,000 updates of 8 frames
expected   not known yet
measured   mIoU 44.6 % on test after 2,166 of the 4,000 updates (train.budget_minutes=2.7, seed 1, a shared H200,
           2026-11-19), so not comparable with camvid_unet, which had them all; the whole recipe was not run
command    regard train camvid_swin --out runs/camvid-swin
"""

from _camvid import DATA, TASK, TRAIN

from regard.models.swin_pyramid import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(
        num_outputs=11,
        image_size=(180, 240),
        patch_size=2,
        width=48,
        heads=(2, 4, 8),
        layers=(2, 2, 6),
        window_size=8,
        pyramid_width=96,
        drop_path=0.1,
    )
    return Recipe(model, TASK, DATA, TRAIN)
