"""CamVid with a Segmenter: a small ViT on a few convolutions, with the mask decoder, from scratch.

task       the class of every pixel of road scenes, 11 classes
data       CamVid, 367 training, 101 validation and 233 test frames, resized to 240 x 180
licence    CamVid's licence does not allow it, so no model is shipped
paper      Strudel et al., Segmenter, ICCV 2021, arXiv:2105.05633
machine    one GPU; 4,000 updates of 8 frames
expected   not known yet
measured   mIoU 42.8 % on test after 2,551 of the 4,000 updates (train.budget_minutes=2.7, seed 1, a shared H200,
           2026-11-19), so not comparable with camvid_unet, which had them all; the whole recipe was not run
command    regard train camvid_segmenter --out runs/camvid-segmenter
           regard see frame.jpg --model runs/camvid-segmenter
"""

from _camvid import DATA, TASK, TRAIN

from regard.models.segmenter import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(
        num_outputs=11,
        image_size=(180, 240),
        patch_size=2,
        stem="hybrid(layers=(2,))",  # stride 4; tokens of stride 8
        width=192,
        heads=3,
        layers=6,
        decoder_layers=1,
    )
    return Recipe(model, TASK, DATA, TRAIN)
