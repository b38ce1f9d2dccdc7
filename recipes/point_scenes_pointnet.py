"""Which shape is every point of? PointNet on composed scenes of points.

task       label every point: floor, sphere, cube, cylinder, cone, torus, pyramid, disc or helix
data       2,000 scenes made from a seed: two to five shapes, turned to any orientation, on a floor, with noise
licence    made here: the model may be shipped
paper      Qi et al., PointNet, CVPR 2017, arXiv:1612.00593, without T-Nets
machine    one GPU; 8,000 updates of 16 scenes of 1,024 points
expected   not known: nobody else has these scenes
measured   not yet
command    regard train point_scenes_pointnet --out runs/point_scenes_pointnet
           regard eval runs/point_scenes_pointnet
"""

from _points import SEGMENTATION, SEGMENTATION_TRAIN

from regard.data.points.scenes import PointScenes
from regard.models.pointnet import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(num_classes=9, head_widths=(450, 256), dropout=0.1)
    return Recipe(model=model, task=SEGMENTATION, data=PointScenes(), train=SEGMENTATION_TRAIN)
