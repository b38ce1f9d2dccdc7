"""Updates of dense tasks neither wait for the device nor copy to it, so that they can be CUDA graphs."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regard.models import deformable_detr, dpt, segmenter, swin_pyramid, unet
from regard.tasks.image import depth_estimation, object_detection, semantic_segmentation
from tests.tasks.image.scenes import SIDE, Shapes

WAITS = {"_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "bincount", "_unique2"}
COPIES = {"lift_fresh"}  # torch.tensor of Python numbers: on a GPU a copy from the host


class Forbidden(TorchDispatchMode):
    """Collect the operations that a CUDA graph cannot hold."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.overloadpacket.__name__
        if name in WAITS | COPIES:
            self.found.append(name)
        return operation(*args, **(kwargs or {}))


def forbidden(task, model):
    """The forbidden operations of a second update: the first may fill caches."""
    batch, rng = task.dataset("train").collate(torch.arange(3)), torch.Generator().manual_seed(0)
    watching = Forbidden()
    task.loss(model.train(), batch, 0, rng)[0].backward()
    with watching:
        task.loss(model, batch, 1, rng)[0].backward()
    return watching.found


SEGMENTATION = semantic_segmentation.Config(
    augment=("flip", "affine(degrees=5)", "random_resized_crop", "color_jitter")
)
DEPTH = depth_estimation.Config(augment=("flip", "color_jitter(hue=0.1)"))
CASES = [
    (SEGMENTATION, segmenter.Segmenter, segmenter),
    (SEGMENTATION, swin_pyramid.SwinPyramid, swin_pyramid),
    (SEGMENTATION, unet.UNet, unet),
    (DEPTH, dpt.DPT, dpt),
]


@pytest.mark.parametrize(("config", "model", "module"), CASES, ids=[case[2].__name__.split(".")[-1] for case in CASES])
def test_updates_of_pixels_stay_on_the_device(config, model, module):
    task = config.build(Shapes())
    built = model(task.fit(module.Config(**module.SIZES["tiny"])))
    assert built.config.image_size == SIDE
    assert forbidden(task, built) == []


def test_updates_of_detectors_wait_for_the_assignment():
    """The opposite, so that the test above can fail: matching is done on the host."""
    task = object_detection.Config().build(Shapes())
    model = deformable_detr.DeformableDETR(task.fit(deformable_detr.Config(**deformable_detr.SIZES["tiny"])))
    assert forbidden(task, model)
