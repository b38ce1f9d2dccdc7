"""Depth of rendered rooms with a small DPT, from scratch.

task       the relative depth of every pixel of one image
data       rooms rendered from a seed with exact depth, 128 x 96 pixels
licence    made here
paper      Ranftl et al., DPT, ICCV 2021, arXiv:2103.13413; the loss: MiDaS, TPAMI 2022, arXiv:1907.01341
machine    one CPU core
expected   not known yet
measured   not yet
command    regard train rendered_dpt --out runs/rooms
           regard depth room.jpg --model runs/rooms --draw depth.png
           regard see room.jpg --model runs/rooms --query 60,30
"""

from _rendered import DATA, TASK, TRAIN

from regard.models.dpt import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(
        num_outputs=1,
        image_size=(96, 128),
        patch_size=8,
        width=128,
        heads=4,
        layers=6,
        out_layers=(2, 3, 5, 6),
        reassemble_widths=(32, 64, 128, 128),
        fusion_width=48,
    )
    return Recipe(model, TASK, DATA, TRAIN)
