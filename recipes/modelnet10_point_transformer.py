"""ModelNet10 from voxels with PointTransformer.

task       classify furniture, ten classes
data       ModelNet10 as 24 x 24 x 24 voxels, 1,024 points of the surface of each object; no object twice
licence    for academic research only, so no model is shipped
paper      Zhao et al., Point Transformer, ICCV 2021, arXiv:2012.09164, with fewer blocks
machine    one GPU; 12,000 updates of 32 objects
expected   not known yet; on these voxels no number is published
measured   84.1 % on test after 795 of the 12,000 updates (train.budget_minutes=1.7, seed 1, a shared H200, 2026-11-19),
           so not comparable with modelnet10_pointnet, which had seven times as many; the whole recipe was not run
command    regard train modelnet10_point_transformer --out runs/modelnet10_point_transformer
           regard eval runs/modelnet10_point_transformer
"""

from _points import TASK, TRAIN

from regard.data.points.modelnet10 import ModelNet10
from regard.models.point_transformer import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(num_classes=10, widths=(32, 64, 128, 256), layers=(1, 1, 2, 1), dropout=0.3)
    return Recipe(model=model, task=TASK, data=ModelNet10(), train=TRAIN)
