"""Augmented scenes: pixels, boxes, masks, classes and depth move together."""

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.data.augment.scenes import SceneAugment, compose, warp_scenes
from regard.data.images.scene_batch import VOID, Scene, SceneBatch, mask_boxes


def scene(rows, columns, objects, seed, masks=True):
    """Objects are rectangles; every object paints its number into all maps."""
    rng = np.random.default_rng(seed)
    shapes = np.zeros((objects, rows, columns), bool)
    for each in shapes:
        (top, bottom), (left, right) = (np.sort(rng.choice(n + 1, 2, replace=False)) for n in (rows, columns))
        each[top:bottom, left:right] = True
    number = (shapes * np.arange(1, objects + 1)[:, None, None]).max(0, initial=0)
    pixels = np.repeat(20 * number[None], 3, 0).astype(np.uint8)
    depth = np.where(number == 0, np.nan, number).astype(np.float32)
    crowd = np.arange(objects) == 1
    return Scene(
        *(pixels, np.arange(1, objects + 1), mask_boxes(shapes), crowd),
        *(shapes if masks else None, number.astype(np.uint8), depth),
    )


BATCH = SceneBatch.collate([scene(12, 17, 4, 0), scene(9, 20, 2, 1), scene(12, 12, 0, 2)])
SIGN = torch.tensor([1.0, -1.0])


def matrices(*numbers):
    return torch.tensor(numbers, dtype=torch.float64).view(1, 2, 3).expand(len(BATCH.pixels), 2, 3)


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_identity_changes_nothing():
    assert_equal(warp_scenes(BATCH, matrices(1, 0, 0, 0, 1, 0)), BATCH)


def test_mirrored_scene_is_the_scene_of_the_mirrored_arrays():
    found = SceneAugment(("flip(p=1)",))(BATCH, torch.Generator().manual_seed(0))
    scenes = []
    for i, (y, x) in enumerate(BATCH.sizes.tolist()):
        n = int(BATCH.counts[i])
        maps = [
            np.ascontiguousarray(values.numpy()[..., :y, :x][..., ::-1])
            for values in (BATCH.pixels[i], BATCH.masks[i, :n], BATCH.labels[i], BATCH.depth[i])
        ]
        classes, crowd = BATCH.classes[i, :n].numpy(), BATCH.crowd[i, :n].numpy()
        scenes.append(Scene(maps[0], classes, mask_boxes(maps[1]), crowd, *maps[1:]))
    assert_equal(found, SceneBatch.collate(scenes))
    boxes_alone = SceneBatch(*BATCH[:6], BATCH.masks[..., :0, :0], *BATCH[7:])
    corners = SceneAugment(("flip(p=1)",))(boxes_alone, torch.Generator().manual_seed(0)).boxes
    torch.testing.assert_close(corners, found.boxes)


def test_whole_pixel_shift_crops_and_drops_objects():
    shift = torch.tensor([5, 3])  # right, down
    found = warp_scenes(BATCH, matrices(1, 0, -5, 0, 1, -3))
    for i, (y, x) in enumerate(BATCH.sizes.tolist()):
        moved = torch.zeros_like(BATCH.masks[i])
        moved[:, 3:y, 5:x] = BATCH.masks[i, :, : y - 3, : x - 5]
        seen = moved.any(2).any(1)
        n = int(seen.sum())
        assert int(found.counts[i]) == n
        assert torch.equal(found.masks[i, :n], moved[seen])
        assert not found.masks[i, n:].any()
        assert torch.equal(found.classes[i, :n], BATCH.classes[i][seen])
        assert torch.equal(found.crowd[i, :n], BATCH.crowd[i][seen])
        assert torch.equal(found.pixels[i, :, 3:y, 5:x], BATCH.pixels[i, :, : y - 3, : x - 5])
        assert (found.pixels[i, :, :3, :x] == 128).all()
        assert (found.labels[i, :3] == VOID).all()
        limit = torch.tensor([x, y, x, y])
        expected = torch.minimum(BATCH.boxes[i] + shift.repeat(2), limit)[seen]
        torch.testing.assert_close(found.boxes[i, :n], expected)
    assert int(found.counts.sum()) < int(BATCH.counts.sum()), "some object has left"


def test_boxes_of_rotated_objects_contain_their_masks():
    angle = torch.tensor(0.4, dtype=torch.float64)
    turn = matrices(angle.cos(), -angle.sin(), 1.3, angle.sin(), angle.cos(), -0.7)
    tight = warp_scenes(BATCH, turn)
    loose = warp_scenes(SceneBatch(*BATCH[:6], BATCH.masks[..., :0, :0], *BATCH[7:]), turn)
    for i in range(len(BATCH.pixels)):
        for j, c in enumerate(tight.classes[i, : tight.counts[i]].tolist()):
            box = loose.boxes[i][(loose.classes[i] == c) & loose.present[i]][0]
            left, top, right, bottom = (box - tight.boxes[i, j]).tolist()
            assert max(left, top) <= 0.51, "a mask takes a pixel by its centre"
            assert min(right, bottom) >= -0.51
        where = (tight.labels[i] > 0) & (tight.labels[i] != VOID)
        torch.testing.assert_close(tight.depth[i][where], tight.labels[i][where].float(), msg="one draw for all maps")


def test_two_warps_are_one_matrix():
    generator = torch.Generator().manual_seed(3)
    first, second = torch.randn(2, 3, 2, 3, generator=generator, dtype=torch.float64)
    point = torch.randn(3, 2, 1, generator=generator, dtype=torch.float64)

    def apply(matrix, at):
        return matrix[:, :, :2] @ at + matrix[:, :, 2:]

    torch.testing.assert_close(apply(compose(first, second), point), apply(first, apply(second, point)))


def test_object_leaves_when_too_little_remains():
    one = SceneBatch.collate([Scene(np.zeros((3, 10, 10), np.uint8), np.ones(1), np.array([[0, 0, 4, 4]]))])
    for right, share in ((-1, 0.75), (-2, 0.5), (-3, 0.25)):
        moved = torch.tensor([[[1.0, 0, -right], [0, 1, 0]]])
        assert int(warp_scenes(one, moved, share).counts) == 1
        assert int(warp_scenes(one, moved, share + 0.01).counts) == 0
        assert not warp_scenes(one, moved, share + 0.01).boxes.any()


def test_same_generator_draws_the_same_and_rows_are_independent():
    augment = SceneAugment(("flip", "affine(degrees=20)", "random_resized_crop", "color_jitter", "random_erasing"))
    one, other = (augment(BATCH, torch.Generator().manual_seed(7)) for _ in range(2))
    assert_equal(one, other)
    assert not one.pixels.where(one.inside[:, None], 0).ne(one.pixels).any(), "padding stays black"
    assert (one.boxes[..., 2:] >= one.boxes[..., :2]).all()
    assert (one.counts <= BATCH.counts).all()


def test_warps_that_boxes_cannot_follow_are_refused():
    for spec in ("randaugment", "trivial_augment", "random_crop(padding=2)"):
        with pytest.raises(BadInput, match="cannot follow"):
            SceneAugment((spec,))
