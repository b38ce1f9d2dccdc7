"""Rendered rooms and Middlebury: depth against a search along every ray, and against the files."""

import math

import numpy as np
import torch

from regard.data.images.middlebury import Middlebury
from regard.data.images.rendered_depth import (
    Block,
    Pattern,
    Plane,
    RenderedDepth,
    Room,
    Sphere,
    camera_rays,
    random_room,
    render,
)
from tests.data.images import needs_data

SMALL = RenderedDepth(image_size=(30, 44), batch_size=2, train_examples=4, eval_examples=3)


def distance(surface, points):
    """Signed distance of points to a surface, from its definition."""
    if isinstance(surface, Plane):
        return points @ surface.normal - surface.offset
    if isinstance(surface, Sphere):
        return np.linalg.norm(points - surface.centre, axis=1) - surface.radius
    outside = np.abs((points - surface.centre) @ surface.axes.T) - surface.half
    return np.linalg.norm(np.maximum(outside, 0), axis=1) + np.minimum(outside.max(1), 0)


def test_depth_is_where_a_march_along_the_ray_meets_the_first_surface():
    for seed in range(3):
        room = random_room(np.random.default_rng(seed), 6)
        rays = camera_rays(room, (15, 21))
        depth = render(room, (15, 21))[1].ravel()
        t, length = np.full(len(rays), 1e-3), np.linalg.norm(rays, axis=1)
        for _ in range(400):  # a step as long as the distance to the nearest surface cannot pass through one
            near = np.min([distance(s, room.camera + t[:, None] * rays) for s in room.surfaces], 0)
            t += near / length
        arrived = near < 1e-6  # not yet where a ray grazes a surface
        assert arrived.mean() > 0.9
        np.testing.assert_allclose(depth[arrived], t[arrived], rtol=1e-4)
        assert np.isfinite(depth).all()


def test_wall_straight_ahead_has_one_depth():
    plain = Pattern(np.ones((2, 3)), 0, 1.0, np.zeros(3))
    wall = Plane(np.array([0.0, 0, -1]), -5.0, plain)
    ball = Sphere(np.array([0.0, 1, 3]), 0.5, plain)
    box = Block(np.array([1.0, 1, 4]), np.array([0.3, 0.2, 0.25]), 0.0, plain)
    room = Room([wall, ball, box], np.array([0.0, 3, 0]), np.array([0.0, 1, 0]), 0.0, math.pi / 2)
    _, depth = render(room, (21, 21))
    assert depth[0, 0] == 5
    assert depth[10, 10] == 2.5, "the ball's nearest point"
    assert depth[10, 12] == 3.75, "the box's front"


def test_shadow_is_darker():
    plain = Pattern(np.ones((2, 3)), 0, 1.0, np.zeros(3))
    floor = Plane(np.array([0.0, 1, 0]), 0.0, plain)
    ball = Sphere(np.array([0.0, 1, 3]), 0.4, plain)
    room = Room([floor, ball], np.array([0.0, 3, 3]), np.array([0.0, 4, 3]), math.pi / 2, 1.2)  # straight down
    lit, _ = render(room._replace(surfaces=[floor]), (41, 41))
    dark, depth = render(room, (41, 41))
    on_floor = depth > 3.9
    assert ((dark < 0.9 * lit).all(0) & on_floor).any()
    assert (dark[:, 0, 0] == lit[:, 0, 0]).all()


def test_rooms_depend_on_seed_split_and_row_alone():
    split = SMALL.load("val")
    one = split.collate(torch.tensor([0, 2]))
    assert one.pixels.shape == (2, 3, 30, 44)
    assert one.depth.shape == (2, 30, 44)
    assert (one.depth > 0).all()
    assert torch.equal(SMALL.load("val").collate(torch.tensor([2])).pixels[0], one.pixels[1])
    assert not torch.equal(SMALL.load("test").collate(torch.tensor([2])).pixels[0], one.pixels[1])
    assert split.fingerprint() != SMALL.load("test").fingerprint()


@needs_data("middlebury_stereo")
def test_middlebury_has_sixteen_views_with_depth():
    data = Middlebury()
    splits = {part: data.load(part) for part in data.splits()}
    assert {part: len(split) for part, split in splits.items()} == {"train": 9, "val": 2, "test": 5}
    scene = splits["test"][0]  # teddy
    assert scene.size == (375, 450)
    known = np.isfinite(scene.depth)
    assert 0.5 < known.mean() < 1
    assert (scene.depth[known] > 0).all()
    disparity = splits["test"].source.files.values("teddy/disp_left.png")
    np.testing.assert_allclose(scene.depth[known], 25600 / disparity[known], rtol=1e-5)
    batch = Middlebury(image_size=(96, 96)).load("val").collate(torch.arange(2))
    assert batch.depth[0, int(batch.sizes[0, 0]) :].isnan().all()


def test_stored_rooms_equal_those_that_are_rendered_when_they_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    lazy, stored = (RenderedDepth((24, 32), train_examples=3, store=store).load("train") for store in (False, True))
    for i in range(3):
        np.testing.assert_array_equal(lazy[i].pixels, stored[i].pixels)
        np.testing.assert_array_equal(lazy[i].depth, stored[i].depth)
