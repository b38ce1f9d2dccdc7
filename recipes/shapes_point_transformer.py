"""Which shape is it? A small Point Transformer on composed shapes.

task       classify a cloud of points: sphere, cube, cylinder, cone, torus, pyramid, disc or helix
data       8,000 shapes made from a seed, turned to any orientation, half of them with a part cut off, with noise
licence    made here: the model may be shipped
paper      Zhao et al., Point Transformer, ICCV 2021, arXiv:2012.09164, small
machine    one CPU thread
expected   not known: nobody else has these shapes
measured   89.7 % of 1,000 test shapes (validation 92.1 %), seed 1, 3:37 minutes on one CPU thread, 2026-11-18; ships as
           `shapes`
command    regard train shapes_point_transformer --out runs/shapes
           regard eval runs/shapes
           regard classify shape.ply
"""

from regard.data.points.shapes import Shapes
from regard.models.point_transformer import Config
from regard.tasks.points import point_classification
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(num_classes=8, widths=(24, 48, 96), layers=(1, 1, 1), neighbors=10),
        task=point_classification.Config(points=192, rotation="any", noise=0.005),
        data=Shapes(points=256),
        train=Train(
            steps=1200,
            device="cpu",
            learning_rate=3e-3,
            schedule="cosine",
            warmup_steps=100,
            min_learning_rate_ratio=0.01,
            betas=(0.9, 0.99),
            eps=1e-8,
            weight_decay=0.01,
            clip_grad_norm=1.0,
            eval_interval=300,
            save_interval=300,
            log_interval=50,
            metric="accuracy",
            save_dtype="float16",
        ),
    )
