"""Images changed at random so that a model sees none of them twice: a whole batch at a time, on the device it lies on.

    AUGMENTATIONS    bytes B C Y X in, bytes of the same shape out       each image changed in a way of its own
    BLENDS      how much of itself each image keeps, B 1 Y X        the rest is another image of the batch (pairs.py)

All random numbers come from the generator handed in; drawing them never waits for the device, and what is done with
them has the same shape whatever was drawn. So a batch costs the same every time, and a run that is taken up again draws
what it would have drawn.
"""

from __future__ import annotations

from regard.core.spec import Registry

AUGMENTATIONS: Registry = {
    "random_crop": ("regard.data.augment.random_crop", "RandomCrop"),
    "random_resized_crop": ("regard.data.augment.random_resized_crop", "RandomResizedCrop"),
    "flip": ("regard.data.augment.flip", "Flip"),
    "affine": ("regard.data.augment.affine", "Affine"),
    "color_jitter": ("regard.data.augment.color_jitter", "ColorJitter"),
    "randaugment": ("regard.data.augment.randaugment", "RandAugment"),
    "trivial_augment": ("regard.data.augment.trivial_augment", "TrivialAugment"),
    "random_erasing": ("regard.data.augment.random_erasing", "RandomErasing"),
}

MIX_METHODS: Registry = {
    "mixup": ("regard.data.augment.mixup", "Mixup"),
    "cutmix": ("regard.data.augment.cutmix", "CutMix"),
}
