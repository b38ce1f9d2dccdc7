"""Place: a point on the globe handed in, by latitude and longitude in degrees.

A text such as "48.86 N, 2.35 E" or "48.86, 2.35" (latitude first, as on maps), or an object {"latitude": 48.86,
"longitude": 2.35}.
Longitudes are brought to -180 up to 180; a latitude beyond a pole is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from regard.core.errors import BadInput, shorten
from regard.modalities.base import NO_LIMITS, NUMBER, STRING, Input, Limits, Source, object_schema

_NUMBER = r"([+-]?\d+(?:\.\d*)?)\s*°?\s*"
_PLACE = re.compile(rf"\s*{_NUMBER}([NS]?)[\s,;]+{_NUMBER}([EW]?)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Place(Input):
    """Latitude and longitude in degrees, north and east positive."""

    latitude: float
    longitude: float

    kind = "place"
    units = "degrees"
    is_object = True

    @classmethod
    def read(cls, source: Any, limits: Limits = NO_LIMITS) -> Place:
        if isinstance(source, Place):
            return source
        if isinstance(source, str) and (found := _PLACE.fullmatch(source)):
            latitude, south, longitude, west = found.groups()
            if any(letter and number[0] in "+-" for number, letter in ((latitude, south), (longitude, west))):
                raise BadInput(f"Expected a sign or a letter, not both, in the place {shorten(repr(source), 60)}.")
            signs = (-1 if south.upper() == "S" else 1), (-1 if west.upper() == "W" else 1)
            return cls._make(signs[0] * float(latitude), signs[1] * float(longitude))
        if isinstance(source, Mapping) and set(source) == {"latitude", "longitude"}:
            return cls._make(source["latitude"], source["longitude"])
        wanted = '"48.86 N, 2.35 E" or {"latitude": 48.86, "longitude": 2.35}'
        raise BadInput(f"Expected a place, {wanted}, got {shorten(repr(source), 60)}.")

    @classmethod
    def _make(cls, latitude: Any, longitude: Any) -> Place:
        for name, value in (("latitude", latitude), ("longitude", longitude)):
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
                raise BadInput(f"Expected a finite {name} in degrees, got {shorten(repr(value), 60)}.")
        if not -90 <= latitude <= 90:
            raise BadInput(f"Latitude {latitude:g} is beyond a pole; it must be -90 to 90 degrees.")
        if not -360 <= longitude <= 360:
            raise BadInput(f"Longitude {longitude:g} is not on the globe; it must be -360 to 360 degrees.")
        around = 0 if -180 <= longitude < 180 else -math.copysign(360, longitude)
        return cls(float(latitude), float(longitude) + around)

    def __str__(self) -> str:
        north, east = "NS"[self.latitude < 0], "EW"[self.longitude < 0]
        return f"{abs(self.latitude):.2f} {north}, {abs(self.longitude):.2f} {east}"

    @classmethod
    def is_single(cls, given: Any) -> bool:
        return isinstance(given, (str, Mapping, Place))

    @classmethod
    def sources(cls, arguments: Sequence[str]) -> Iterator[Source]:
        for text in arguments:
            yield Source(text, text)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        latitude = {**NUMBER, "minimum": -90, "maximum": 90}
        longitude = {**NUMBER, "minimum": -360, "maximum": 360}
        text = {**STRING, "description": 'latitude and longitude, such as "48.86 N, 2.35 E"'}
        return {"anyOf": [object_schema({"latitude": latitude, "longitude": longitude}), text]}
