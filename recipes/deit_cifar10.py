"""CIFAR-10 with a DeiT: the plain Vision Transformer, taught by a ResNet-18 through a token of its own, 100 epochs.

task       classify small images into ten classes, with labels and a teacher
data       CIFAR-10, lossless: 45,000 training, 5,000 validation and 10,000 test images
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      Touvron et al., Training data-efficient image transformers & distillation through attention, ICML 2021,
           arXiv:2012.12877; all else as in vit_cifar10, so that the two may be compared
machine    one GPU; 100 epochs (17,500 updates of 256 images), 3.7 million parameters; after its teacher
expected   better than vit_cifar10, which is the same model without the teacher (and without its token)
measured   on the JPEG copy of the images (data.path=cifar10_jpeg):
           84.1 % on the test split (83.9 to 84.2, seeds 1 to 3; without the teacher 82.0, 81.6 to 82.6; the teacher
           89.8), 84.0 on validation; 17 minutes of an H200 shared with ten other runs
command    regard train resnet_cifar10 --out runs/resnet
           regard train deit_cifar10 --out runs/deit
           regard train deit_cifar10 --out runs/deit-soft task.kind=soft task.alpha=0.1
           regard eval runs/deit
"""

from _cifar10 import DATA, TASK, TRAIN

from regard.core.config import asdict_shallow
from regard.models.deit import Config
from regard.tasks.image import distillation
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(
            num_classes=10,
            image_size=32,
            patch_size=4,
            width=256,
            heads=4,
            layers=7,
            ffn=512,
            attention_dropout=0.1,
            drop_path=0.1,
        ),
        task=distillation.Config(teacher="runs/resnet", kind="hard", alpha=0.5, **asdict_shallow(TASK)),
        data=DATA,
        train=TRAIN,
    )
