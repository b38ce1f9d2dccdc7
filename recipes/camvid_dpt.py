"""CamVid with a DPT: a small ViT whose tokens of four depths are fused from coarse to fine, from scratch.

task       the class of every pixel of road scenes, 11 classes
data       CamVid, 367 training, 101 validation and 233 test frames, resized to 240 x 180
licence    CamVid's licence does not allow it, so no model is shipped
paper      Ranftl et al., DPT, ICCV 2021, arXiv:2103.13413
machine    one GPU; 4,000 updates of 8 frames
expected   not known yet
measured   mIoU 43.7 % on test after 2,401 of the 4,000 updates (train.budget_minutes=2.7, seed 1, a shared H200,
           2026-11-19), so not comparable with camvid_unet, which had them all; the whole recipe was not run
command    regard train camvid_dpt --out runs/camvid-dpt
           regard see frame.jpg --model runs/camvid-dpt --query 90,120
"""

from _camvid import DATA, TASK, TRAIN

from regard.models.dpt import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(
        num_outputs=11,
        image_size=(180, 240),
        patch_size=10,
        width=192,
        heads=3,
        layers=6,
        out_layers=(2, 3, 5, 6),
        reassemble_widths=(48, 96, 192, 192),
        fusion_width=64,
        fusion_norm=True,
        drop_path=0.1,
    )
    return Recipe(model, TASK, DATA, TRAIN)
