"""Land or ocean: places are even on the sphere, no cell is in two splits, and accuracy is counted by latitude."""

import numpy as np
import pytest
import torch

from regard.data.globe.land_mask import LandMask, cells_of
from regard.tasks.globe.place_classification import Config


@pytest.fixture
def data(tmp_path):
    mask = np.zeros((36, 72), bool)
    mask[:12] = True  # land is what lies beyond 30 degrees north
    np.savez(tmp_path / "land_mask_025deg.npz", land=mask)
    return LandMask(str(tmp_path), examples=400)


def test_places_are_even_on_the_sphere_and_labels_are_those_of_their_cells(data):
    parts = {split: data.load(split).examples for split in ("train", "val", "test")}
    assert [len(part.labels) for part in parts.values()] == [400, 100, 500]
    for part in parts.values():
        assert torch.equal(part.labels, (part.places[:, 1] > 30).long())
        assert part.places.abs().max() <= 180
    sines = torch.cat([part.places[:, 1] for part in parts.values()]).deg2rad().sin()
    assert abs(sines.mean()) < 0.08
    assert sines.var().item() == pytest.approx(1 / 3, abs=0.04)
    cells = [set(zip(*(x.tolist() for x in cells_of(p.places.numpy(), (36, 72))), strict=True)) for p in parts.values()]
    assert not cells[0] & cells[1]
    assert not cells[0] & cells[2]


def test_cells_begin_in_the_north_west():
    places = np.array([[-180.0, 90.0], [179.99, -89.99], [180.0, -90.0], [0.1, -0.1]])
    rows, columns = cells_of(places, (720, 1440))
    assert rows.tolist() == [0, 719, 719, 360]
    assert columns.tolist() == [0, 1439, 1439, 720]


class North(torch.nn.Module):
    """Calls everything land that is more than `edge` degrees north."""

    def __init__(self, edge):
        super().__init__()
        self.edge = torch.nn.Parameter(torch.tensor(edge))

    def forward(self, places):
        score = (places[:, 1] - self.edge) * 10
        return torch.stack([-score, score], -1)


def test_accuracy_is_counted_by_latitude(data):
    task = Config().build(data)
    found = task.evaluate(North(30.0), "test")
    assert found["accuracy"] == found["high_latitudes"] == 1.0
    wrong = task.evaluate(North(0.0), "test")  # takes 0 to 30 degrees north for land
    assert wrong["high_latitudes"] == wrong["middle_latitudes"] == 1.0
    places = data.load("test").examples.places
    low = places[:, 1].abs() < 30
    expected = 1 - ((places[:, 1] > 0) & low).sum().item() / low.sum().item()
    assert wrong["low_latitudes"] == pytest.approx(expected)
    assert wrong["places"] == 500


def test_a_network_learns_the_mask(data):
    from regard.models import build

    torch.manual_seed(0)
    task, model = Config().build(data), build("siren", size="tiny", num_outputs=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(60):
        total, _ = task.loss(model, data.load("train").examples, step)
        optimizer.zero_grad()
        (total / 400).backward()
        optimizer.step()
    assert task.evaluate(model, "test")["accuracy"] > 0.9
