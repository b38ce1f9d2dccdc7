"""Places on the globe: what is read, and what is refused in one sentence."""

import pytest

from regard.core.errors import BadInput
from regard.modalities import Place


def test_every_way_to_write_a_place():
    for source in ("48.86 N, 2.35 E", "48.86,2.35", "48.86° n; 2.35° e", {"latitude": 48.86, "longitude": 2.35}):
        assert Place.read(source) == Place(48.86, 2.35)
    assert Place.read("33.9 S 70 W") == Place.read("-33.9, -70") == Place(-33.9, -70.0)
    assert Place.read(Place(1.0, 2.0)) == Place(1.0, 2.0)
    assert str(Place(-33.9, 151.2)) == "33.90 S, 151.20 E"
    assert Place.read(str(Place(-33.9, -151.2))) == Place(-33.9, -151.2)


def test_longitudes_go_round_the_globe_once():
    assert [Place.read(f"0, {x}").longitude for x in (180, 190, 359.5, -190)] == [-180.0, -170.0, -0.5, 170.0]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("91 N, 0 E", "beyond a pole"),
        ("-90.1, 0", "beyond a pole"),
        ("0, 361", "not on the globe"),
        ("Paris", "Expected a place"),
        ("48.86", "Expected a place"),
        ("-33.9 S, 70 W", "a sign or a letter"),
        ({"latitude": 1.0}, "Expected a place"),
        ({"latitude": float("nan"), "longitude": 0.0}, "finite latitude"),
        ({"latitude": 0.0, "longitude": True}, "finite longitude"),
        ((2.35, 48.86), "Expected a place"),
        (None, "Expected a place"),
    ],
)
def test_what_is_no_place_is_refused(source, message):
    with pytest.raises(BadInput, match=message):
        Place.read(source)
