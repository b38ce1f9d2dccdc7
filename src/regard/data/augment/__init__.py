"""Random image augmentation: a whole batch at a time, on its device.

    AUGMENTATIONS    bytes B C Y X in, bytes of the same shape out                each image changed independently
    MIX_METHODS      weight of each image, B 1 Y X; the rest is another image     (batch_mixing.py)

All random numbers come from the given generator; sampling them never waits for the device, and shapes do not depend on
them. So every batch costs the same, and a resumed run samples what it would have sampled.
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
