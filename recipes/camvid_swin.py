"""CamVid with a Swin Transformer and a pyramid head, from scratch.

task       the class of every pixel of road scenes, 11 classes
data       CamVid, 367 training, 101 validation and 233 test frames, resized to 240 x 180
licence    CamVid's licence does not allow it, so no model is shipped
paper      Liu et al., Swin Transformer, ICCV 2021, arXiv:2103.14030
machine    one GPU; 4,000 updates of 8 frames
expected   not known yet
measured   not on a GPU yet
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
