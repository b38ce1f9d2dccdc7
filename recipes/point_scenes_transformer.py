"""Which shape is every point of? Point Transformer on composed scenes of points.

task       label every point: floor, sphere, cube, cylinder, cone, torus, pyramid, disc or helix
data       2,000 scenes made from a seed: two to five shapes, turned to any orientation, on a floor, with noise
licence    made here: the model may be shipped
paper      Zhao et al., Point Transformer, ICCV 2021, arXiv:2012.09164, small
machine    one GPU; 8,000 updates of 16 scenes of 1,024 points
expected   not known: nobody else has these scenes
measured   not yet
command    regard train point_scenes_transformer --out runs/point_scenes
           regard eval runs/point_scenes
           regard run runs/point_scenes scene.ply --out labels.png
"""

from _points import SEGMENTATION, SEGMENTATION_TRAIN

from regard.data.points.scenes import PointScenes
from regard.models.point_transformer import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(num_classes=9, widths=(32, 64, 128, 256), layers=(1, 1, 2, 1), dropout=0.1)
    return Recipe(model=model, task=SEGMENTATION, data=PointScenes(), train=SEGMENTATION_TRAIN)
