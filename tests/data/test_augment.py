"""Augmentation: properties of all of them, the meaning of each operation, and comparison with torchvision."""

import math

import pytest
import torch

from regard.core.errors import BadInput, RegardError
from regard.core.spec import build_part
from regard.data.augment import AUGMENTATIONS, MIX_METHODS, lookup_tables, operations
from regard.data.augment.affine import Affine
from regard.data.augment.batch_mixing import mix_batch
from regard.data.augment.color_jitter import ColorJitter, rotate_hue
from regard.data.augment.cutmix import CutMix
from regard.data.augment.flip import Flip
from regard.data.augment.mixup import Mixup, sample_beta
from regard.data.augment.random_crop import RandomCrop
from regard.data.augment.random_erasing import RandomErasing
from regard.data.augment.random_resized_crop import RandomResizedCrop
from regard.data.augment.sampling import box_mask, random_boxes
from regard.data.augment.warp import affine_matrices, warp_images


def dice(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(b=7, c=3, y=19, x=23, seed=0):
    """Smooth random images: neighbours are alike, as in photographs."""
    rough = torch.rand(b, c, 5, 5, generator=dice(seed))
    values = torch.nn.functional.interpolate(rough, (y, x), mode="bicubic").clamp(0, 1)
    return (values * 255).byte()


# -- laws --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize("shape", [(7, 3, 19, 23), (1, 3, 9, 9), (5, 1, 28, 28), (3, 3, 1, 1), (2, 1, 2, 5)])
def test_augmentation_keeps_shape_dtype_and_input(name, shape):
    before = pictures(*shape)
    params = before.clone()
    after = build_part(AUGMENTATIONS, name, "augmentation")(params, dice())
    assert after.shape == before.shape
    assert after.dtype == torch.uint8
    assert torch.equal(params, before)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentation_depends_on_the_generator_alone(name):
    augment, images = build_part(AUGMENTATIONS, name, "augmentation"), pictures(40)
    one, again, other = (augment(images, dice(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_global_random_state_is_unchanged(name):
    before = torch.get_rng_state()
    build_part(AUGMENTATIONS, name, "augmentation")(pictures(), dice())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_each_image_is_augmented_independently(name):
    same = pictures(1).expand(64, -1, -1, -1)
    after = build_part(AUGMENTATIONS, name, "augmentation")(same, dice())
    assert len(after.flatten(1).unique(dim=0)) >= 2
    if name not in ("flip",):
        assert len(after.flatten(1).unique(dim=0)) > 8


def test_an_unknown_augmentation_offers_the_nearest():
    with pytest.raises(RegardError, match="did you mean 'randaugment'"):
        build_part(AUGMENTATIONS, "randaugmnet", "augmentation")


# -- single ones -------------------------------------------------------------------------------------------------------


def test_flip_mirrors_about_half_of_the_images():
    images = pictures(400)
    after = Flip()(images, dice())
    mirrored = (after == images.flip(-1)).flatten(1).all(1)
    stored = (after == images).flatten(1).all(1)
    assert (mirrored ^ stored).all()
    assert 150 < int(mirrored.sum()) < 250


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_crop_is_a_window_of_the_padded_image(mode):
    p, image = 2, pictures(1, 3, 7, 5)
    count = RandomCrop(p, mode)(image.expand(600, -1, -1, -1), dice())
    wide = torch.nn.functional.pad(image.float(), (p, p, p, p), mode=mode).byte()[0]
    pieces = [wide[:, i : i + 7, j : j + 5] for i in range(2 * p + 1) for j in range(2 * p + 1)]
    found = [sum(torch.equal(one, piece) for one in count) for piece in pieces]
    assert sum(found) == 600
    assert min(found) > 0


def test_crop_without_padding_and_identity_warp_change_nothing():
    images = pictures()
    assert torch.equal(RandomCrop(0)(images, dice()), images)
    one = torch.ones(len(images))
    assert torch.equal(warp_images(images, affine_matrices(one, 0.0, 0.0, 0.0, 1.0, 0.0)), images)


def test_warp_by_whole_pixels_shifts_and_fills_with_grey():
    images = pictures()
    moved = warp_images(images, affine_matrices(torch.ones(7), 0.0, 3.0, 0.0, 1.0, -2.0))
    assert torch.equal(moved[:, :, 2:, :-3], images[:, :, :-2, 3:])
    assert (moved[:, :, :2] == 128).all()
    assert (moved[:, :, :, -3:] == 128).all()


def test_resized_crop_has_the_requested_area():
    ramp = torch.arange(0, 200, 2).byte()
    across = ramp.expand(300, 1, 100, 100)
    down = ramp[:, None].expand(300, 1, 100, 100)
    crop = RandomResizedCrop(0.25, 0.5, ratio=1.5)
    wide, tall = (crop(x, dice(5)).flatten(1).float() for x in (across, down))
    shares = [(x.amax(1) - x.amin(1)) / 200 for x in (wide, tall)]
    area = shares[0] * shares[1]
    assert float(area.min()) > 0.22
    assert float(area.max()) < 0.52
    assert 0.33 < float(area.mean()) < 0.41


def test_erasing_probability_and_area():
    images = torch.full((600, 3, 31, 37), 7, dtype=torch.uint8)
    gone = (RandomErasing(0.25)(images, dice()) != 7).any(1)
    touched = gone.flatten(1).any(1)
    assert 0.2 < float(touched.float().mean()) < 0.3
    share = gone[touched].float().mean((1, 2))
    assert float(share.max()) < 0.36
    rows, columns = gone[touched].any(2).sum(1), gone[touched].any(1).sum(1)
    assert float((rows * columns - gone[touched].sum((1, 2))).abs().max() / (31 * 37)) < 0.01  # a rectangle, all of it


def test_boxes_are_inside_and_have_the_requested_size():
    tall, wide = torch.rand(200, generator=dice()) * 20, torch.rand(200, generator=dice(1)) * 40
    box = random_boxes(tall, wide, 13, 17, dice(2))
    mask = box_mask(box, 13, 17)
    assert torch.equal(mask.sum((1, 2, 3)), (tall.round().clamp(max=13) * wide.round().clamp(max=17)).long())


# -- two in one --------------------------------------------------------------------------------------------------------


def test_beta_variables_have_their_mean_and_spread():
    for alpha in (0.3, 1.0, 4.0):
        found = sample_beta(20_000, alpha, dice())
        assert abs(float(found.mean()) - 0.5) < 0.01
        assert abs(float(found.var()) - 1 / (4 * (2 * alpha + 1))) < 0.005


@pytest.mark.parametrize("name", MIX_METHODS)
def test_labels_are_mixed_like_pixels(name):
    """Image k is all k, so that its mean shows how much of which image is in it."""
    b = 60
    values = torch.arange(b, dtype=torch.float64)[:, None, None, None].expand(b, 1, 9, 11)
    targets = torch.eye(b, dtype=torch.float64)
    mixed, labels = mix_batch(values, targets, [build_part(MIX_METHODS, name, "blend")], dice())
    assert torch.allclose(labels.sum(1), torch.ones(b, dtype=torch.float64), atol=1e-6)
    assert torch.allclose(labels @ torch.arange(b, dtype=torch.float64), mixed.mean((1, 2, 3)), atol=1e-4)
    assert float(labels.diagonal().min()) < 0.4


def test_cutmix_and_mixup_pixels():
    cut, mixed = (kind(1.0)(50, 8, 12, dice()) for kind in (CutMix, Mixup))
    assert set(cut.unique().tolist()) == {0.0, 1.0}
    assert float(mixed.std((1, 2, 3)).max()) < 1e-6


def test_cutmix_or_mixup_is_chosen_at_random():
    values, targets = torch.randn(80, 3, 6, 6), torch.eye(80)
    same = mix_batch(values, targets, [], dice())
    assert same[0] is values
    marked = torch.ones(80, 1, 6, 6) * torch.tensor([-1.0, 1.0]).repeat(40)[:, None, None, None]
    mixed, _ = mix_batch(marked, targets, [Mixup(1.0), CutMix(1.0)], dice())
    full = mixed.abs().flatten(1).eq(1).all(1)  # cut, or met one of its own sign
    assert 30 < int(full.sum()) < 75


# -- beside torchvision ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference():
    return pytest.importorskip("torchvision.transforms.v2.functional")


def off(a, b):
    return int((a.int() - b.int()).abs().max())


@pytest.mark.parametrize("c", [1, 3])
def test_lookup_tables_equal_torchvision(reference, c):
    images = pictures(6, c)
    lines = {
        "autocontrast": (lookup_tables.autocontrast(images), reference.autocontrast),
        "equalize": (lookup_tables.equalize(images), reference.equalize),
        "invert": (lookup_tables.invert(images), reference.invert),
        "posterize": (lookup_tables.posterize(torch.full((6,), 3), images), lambda x: reference.posterize(x, 3)),
        "solarize": (lookup_tables.solarize(torch.full((6,), 100.0)), lambda x: reference.solarize(x, 100)),
    }
    for name, (table, their) in lines.items():
        assert torch.equal(lookup_tables.apply_tables(images, table), their(images)), name


@pytest.mark.parametrize("factor", [0.1, 0.7, 1.0, 1.9])
def test_color_factors_equal_torchvision_within_a_byte(reference, factor):
    images, f = pictures(6), torch.full((6,), factor)
    assert (
        off(
            lookup_tables.apply_tables(images, lookup_tables.brightness(f)), reference.adjust_brightness(images, factor)
        )
        <= 1
    )
    assert (
        off(
            lookup_tables.apply_tables(images, lookup_tables.contrast(images, f)),
            reference.adjust_contrast(images, factor),
        )
        <= 1
    )
    assert (
        off(operations.blend(images, lookup_tables.gray(images), f), reference.adjust_saturation(images, factor)) <= 1
    )
    assert off(operations.blend(images, operations.blur(images), f), reference.adjust_sharpness(images, factor)) <= 1


@pytest.mark.parametrize("by", [-0.5, -0.2, 0.0, 0.13, 0.4])
def test_rotated_hue_equals_torchvision_within_a_byte(reference, by):
    images = pictures(6)
    assert off(rotate_hue(images, torch.full((6,), by)), reference.adjust_hue(images, by)) <= 1


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("rotate", {"angle": -24.0}),
        ("shear_x", {"shear": [math.degrees(math.atan(0.24)), 0.0]}),
        ("shear_y", {"shear": [0.0, math.degrees(math.atan(0.24))]}),
        ("translate_x", {"translate": [-0.36 * 40, 0]}),
        ("translate_y", {"translate": [0, -0.36 * 25]}),
    ],
)
def test_warps_equal_torchvision(reference, name, arguments):
    images = pictures(4, 3, 25, 40)
    which = torch.full((4,), operations.OPERATIONS.index(name))
    actual = operations.apply_operations(images, which, torch.full((4,), 8.0), torch.ones(4))
    params = {"angle": 0.0, "translate": [0.0, 0.0], "scale": 1.0, "shear": [0.0, 0.0]} | arguments
    params["interpolation"] = reference.InterpolationMode.BILINEAR
    their, within = (reference.affine(x, **params) for x in (images, torch.full_like(images, 255)))
    within = within == 255  # at the edge torchvision weighs what it fills with differently
    assert off(actual * within, their * within) <= 1
    assert 0.4 < float(within.float().mean()) < 0.98


# -- RandAugment -------------------------------------------------------------------------------------------------------


def test_image_without_an_operation_is_unchanged():
    images = pictures(len(operations.OPERATIONS) + 1) // 2 + 40
    which = torch.arange(-1, len(operations.OPERATIONS))
    after = operations.apply_operations(
        images, which, torch.full_like(which, 7.0, dtype=torch.float32), torch.ones(len(which))
    )
    assert torch.equal(after[0], images[0])
    same = [name for name, a, b in zip(operations.OPERATIONS, after[1:], images[1:], strict=True) if torch.equal(a, b)]
    assert same == []


def test_jitter_changes_brightness_by_its_fraction_and_no_more():
    grey = torch.full((500, 1, 2, 2), 100, dtype=torch.uint8)
    found = ColorJitter(brightness=0.4, contrast=0.0)(grey, dice())
    assert 60 <= found.min() < 65
    assert 135 < found.max() <= 140
    dark = ColorJitter(brightness=2.0, contrast=0.0)(grey, dice())  # never below black
    assert 0 <= dark.min() < 10
    assert dark.max() > 200


def test_grey_images_have_no_hue_to_jitter():
    grey = pictures()[:, :1]
    assert torch.equal(ColorJitter(hue=0.3)(grey, dice()), ColorJitter(hue=0.0)(grey, dice()))


def test_what_an_affine_map_uncovers_is_black_unless_told_otherwise():
    white = torch.full((20, 1, 12, 12), 255, dtype=torch.uint8)
    settings = {"degrees": 0.0, "shear": 0.0, "scale": 0.0, "translate": 0.5}
    assert Affine(**settings)(white, dice()).min() == 0
    assert Affine(**settings, fill=7.0)(white, dice()).min() == 7


def test_an_image_does_not_depend_on_its_batch():
    images = pictures(len(operations.OPERATIONS))
    which = torch.arange(len(operations.OPERATIONS))
    strength, sign = torch.linspace(1, 9, len(which)), torch.ones(len(which))
    full = operations.apply_operations(images, which, strength, sign)
    for n in range(len(which)):
        alone = operations.apply_operations(images[n : n + 1], which[n : n + 1], strength[n : n + 1], sign[n : n + 1])
        assert torch.equal(alone[0], full[n]), operations.OPERATIONS[n]


def test_strength_zero_changes_nothing():
    images = pictures(len(operations.OPERATIONS))
    which = torch.arange(len(operations.OPERATIONS))
    after = operations.apply_operations(images, which, torch.zeros(len(which)), torch.ones(len(which)))
    for n, name in enumerate(operations.OPERATIONS):
        if name not in ("autocontrast", "equalize", "invert", "posterize"):
            assert torch.equal(after[n], images[n]), name


def test_invalid_arguments_are_refused_in_one_line():
    for make_it in (
        lambda: RandomResizedCrop(0.5, 0.2),
        lambda: RandomCrop(padding_mode="wrap"),
        lambda: Mixup(0.0),
        lambda: CutMix(-1.0),
        lambda: build_part(AUGMENTATIONS, "color_jitter(hue=0.7)", "augmentation"),
    ):
        with pytest.raises(BadInput):
            make_it()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("randaugment(num_ops=-1)", "num_ops of augmentation 'randaugment' must be at least 1, got -1"),
        ("randaugment(num_ops=2, magnitude=1000)", r"randaugment\(magnitude=1000.0\): a number from 0 to 10"),
        ("flip(p=7)", r"flip\(p=7.0\): a number from 0 to 1 "),
        ("randaugment(num_ops=16)", r"randaugment\(num_ops=16\): a number from 1 to 15"),
        ("flip(p='often')", "'p of augmentation flip' must be float, got 'often'"),
        ("random_erasing(p=2)", r"random_erasing\(p=2.0\): a number from 0 to 1 "),
        ("affine(scale=-3)", r"affine\(scale=-3.0\): a number from 0 to 10"),
        ("color_jitter(contrast=-1)", r"color_jitter\(contrast=-1.0\): a number from 0"),
        ("random_crop(padding=-1)", "padding of augmentation 'random_crop' must be at least 0, got -1"),
        ("random_resized_crop(ratio=0)", "ratio of augmentation 'random_resized_crop' must be above 0, got 0.0"),
    ],
)
def test_invalid_augmentation_is_named(spec, message):
    with pytest.raises(RegardError, match=message):
        build_part(AUGMENTATIONS, spec, "augmentation")


def test_translation_is_limited():
    RandomCrop(padding=31).fits(32, 40)
    with pytest.raises(
        BadInput, match=r"crop\(padding=500\): images of 32 x 40 could be shifted out of sight; give at most 31"
    ):
        RandomCrop(padding=500).fits(32, 40)


@pytest.mark.parametrize("alpha", [0.0, -1.0, 1e9, math.nan])
@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_invalid_alphas_are_refused(name, alpha):
    with pytest.raises(BadInput, match="alpha must be above 0 and at most 100"):
        build_part(MIX_METHODS, name, "blend", alpha=alpha)


def test_resized_crops_reach_every_border_and_no_further():
    ramp = torch.arange(0, 200, 2).byte()
    for image in (ramp.expand(400, 1, 100, 100), ramp[:, None].expand(400, 1, 100, 100)):
        found = RandomResizedCrop(0.2, 0.3, ratio=1.2)(image, dice(3)).flatten(1).float()
        first, last = found.amin(1), found.amax(1)
        assert float(first.min()) < 4
        assert float(last.max()) > 194
        assert abs(float((first + last).mean()) - 198) < 10  # as often on one side as on the other
        assert float(((first + last) / 2).std()) > 15


@pytest.mark.parametrize("side", [9, 10])
def test_images_may_be_shifted_by_all_but_one_pixel(side):
    RandomCrop(side - 1).fits(side, side + 3)
    with pytest.raises(BadInput, match=f"give at most {side - 1}"):
        RandomCrop(side).fits(side, side + 3)
