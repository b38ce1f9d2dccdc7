"""ModelNet10 from voxels with PointNet.

task       classify furniture, ten classes
data       ModelNet10 as 24 x 24 x 24 voxels, 1,024 points of the surface of each object; no object twice
licence    for academic research only, so no model is shipped
paper      Qi et al., PointNet, CVPR 2017, arXiv:1612.00593, without T-Nets
machine    one GPU; 12,000 updates of 32 objects
expected   not known yet; on these voxels no number is published
measured   90.0 % on test after 5,601 of the 12,000 updates (train.budget_minutes=1.7, seed 1, a shared H200,
           2026-11-19); the whole recipe was not run
command    regard train modelnet10_pointnet --out runs/modelnet10_pointnet
           regard eval runs/modelnet10_pointnet
"""

from _points import TASK, TRAIN

from regard.data.points.modelnet10 import ModelNet10
from regard.models.pointnet import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(model=Config(num_classes=10, head_widths=(632, 256)), task=TASK, data=ModelNet10(), train=TRAIN)
