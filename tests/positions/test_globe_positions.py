"""Fourier features, ground positions and spherical harmonics: the invariances that their formulas promise."""

import math

import pytest
import torch
from scipy.special import sph_harm_y

from regard.core.errors import BadInput
from regard.models import build
from regard.positions import GLOBE_POSITIONS
from regard.positions.added.fourier import FourierFeatures
from regard.positions.added.ground import GroundPositions
from regard.positions.added.spherical import SphericalHarmonics


@pytest.fixture(autouse=True)
def _double(double):
    pass


def places(n):
    z = torch.rand(n) * 2 - 1
    return torch.stack([torch.rand(n) * 360 - 180, torch.rad2deg(torch.asin(z))], -1)


def test_similarity_of_fourier_features_depends_on_the_difference_alone():
    for features in (FourierFeatures(64, 3, scale=0.7), FourierFeatures(36, 3, "powers", scale=0.1)):
        x, y, shift = torch.randn(3, 5, 3).unbind(0)
        dots = (features(x) * features(y)).sum(-1)
        torch.testing.assert_close((features(x + shift) * features(y + shift)).sum(-1), dots)
        assert features(x).shape == (5, features.frequencies.shape[0] * 2)
    assert FourierFeatures(12, 2, "powers").frequencies.tolist() == [[1, 0], [2, 0], [4, 0], [0, 1], [0, 2], [0, 4]]
    near, far = (
        float((FourierFeatures(4096, 1, scale=s)(torch.tensor([[0.0], [0.3]]))).prod(0).mean()) for s in (0.1, 3)
    )
    assert near > far  # a larger scale tells near points apart
    with pytest.raises(BadInput, match="divisible by 6"):
        FourierFeatures(16, 3, "powers")


def test_equal_ground_coordinates_have_equal_codes_at_different_resolutions():
    ground = GroundPositions(16, patch_size=4)
    metres = torch.tensor([10.0, 30.0])
    rows, _ = ground.coordinates((9, 6), metres)
    # the middle of three patches of 10 m pixels is the centre of one of 30 m pixels
    torch.testing.assert_close(rows[0, 1::3], rows[1, :3])
    codes = ground((9, 6), metres).unflatten(1, (9, 6))
    torch.testing.assert_close(codes[0, 1::3, 1::3], codes[1, :3, :2])
    assert not torch.allclose(codes[0], codes[1])
    other = GroundPositions(16, patch_size=12)((3, 2), torch.tensor([10.0]))  # larger patches of the same pixels
    torch.testing.assert_close(other[0].unflatten(0, (3, 2)), codes[1, :3, :2])
    with pytest.raises(BadInput, match="above zero"):
        ground((2, 2), torch.tensor([0.0]))
    with pytest.raises(BadInput, match="divisible by 4"):
        GroundPositions(10)


def test_harmonics_are_scipys():
    points = torch.cat([places(20), torch.tensor([[0.0, 90.0], [30.0, -90.0], [180.0, 0.0]])])
    found = SphericalHarmonics(9)(points)
    longitude, colatitude = torch.deg2rad(points[:, 0]).numpy(), torch.deg2rad(90 - points[:, 1]).numpy()
    column = 0
    for degree in range(9):
        for m in range(-degree, degree + 1):
            value = sph_harm_y(degree, abs(m), colatitude, longitude)
            real = value.imag if m < 0 else value.real
            expected = (-1) ** m * real * (math.sqrt(2) if m else 1)
            torch.testing.assert_close(found[:, column], torch.from_numpy(expected), atol=1e-10, rtol=1e-8)
            column += 1


def test_similarity_of_harmonics_depends_on_the_angle_alone_and_poles_are_no_special_places():
    harmonics = SphericalHarmonics(30)
    x, y = places(50), places(50)
    a, b = torch.deg2rad(x), torch.deg2rad(y)
    cosine = a[:, 1].sin() * b[:, 1].sin() + a[:, 1].cos() * b[:, 1].cos() * (a[:, 0] - b[:, 0]).cos()
    legendre = [torch.ones_like(cosine), cosine]
    for degree in range(2, 30):
        legendre.append(((2 * degree - 1) * cosine * legendre[-1] - (degree - 1) * legendre[-2]) / degree)
    expected = sum((2 * degree + 1) / (4 * math.pi) * p for degree, p in enumerate(legendre))
    torch.testing.assert_close((harmonics(x) * harmonics(y)).sum(-1), expected)
    pole = harmonics(torch.tensor([[0.0, 90.0], [123.0, 90.0]]))
    torch.testing.assert_close(pole[0], pole[1])
    torch.testing.assert_close(harmonics(x + torch.tensor([360.0, 0.0])), harmonics(x))
    torch.testing.assert_close(harmonics(x).square().sum(-1), torch.full((50,), 900 / (4 * math.pi)))


def test_what_is_not_on_the_globe_is_refused():
    for wrong in ([[0.0, 91.0]], [[float("nan"), 0.0]], [[0.0, float("nan")]]):
        for model in (SphericalHarmonics(3), build("siren", size="tiny", positions="unit_vector")):
            with pytest.raises(BadInput, match="latitudes must be"):
                model(torch.tensor(wrong))
    with pytest.raises(BadInput, match="got 3 coordinates"):
        SphericalHarmonics(3)(torch.zeros(2, 3))
    with pytest.raises(BadInput, match="1 to 128"):
        SphericalHarmonics(129)


@pytest.mark.parametrize("positions", GLOBE_POSITIONS)
def test_a_network_on_the_globe_is_continuous_over_the_date_line_unless_it_reads_degrees(positions):
    model = build("siren", size="tiny", positions=positions).eval()
    west, east = model(torch.tensor([[-180.0, 20.0]])), model(torch.tensor([[180.0, 20.0]]))
    assert torch.allclose(west, east) == (positions != "degrees")
    assert model(places(7)).shape == (7, 1)


def test_sine_layers_keep_the_spread_of_their_inputs():
    model = build("siren", positions="harmonics(degrees=10)", width=256, layers=5, first_omega=30.0)
    x = model.positions(places(500))
    for depth, layer in enumerate(model.layers):
        x = torch.sin((30.0 if depth == 0 else 1.0) * layer(x))
        assert 0.3 < x.std().item() < 0.9, depth
