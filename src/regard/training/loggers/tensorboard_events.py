"""TensorBoard's event files, written by hand: a format of a few fields, so that no package is needed to write it.

    record   length (8 bytes), checksum of the length, an event, checksum of the event      one after another
    event    1 time, 2 step, 3 "brain.Event:2" (the first), 5 values: tag and number, or tag and text

An event is a protocol buffer: each field is (number · 8 + kind), then a number in sevens of bits, 4 or 8 bytes, or a
length and bytes. Checksums are CRC-32C, turned and shifted. What is cut off at the end of a file is passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

_TABLE = []
for _n in range(256):
    for _ in range(8):
        _n = _n >> 1 ^ (0x82F63B78 if _n & 1 else 0)
    _TABLE.append(_n)


def file_header(time: float) -> bytes:
    """The record a file begins with."""
    return _record(_event(time, 0, _bytes(3, b"brain.Event:2")))


def scalars_record(time: float, step: int, values: Mapping[str, float]) -> bytes:
    """A record of numbers by tag."""
    said = b"".join(
        _bytes(1, _bytes(1, tag.encode()) + b"\x15" + struct.pack("<f", _f32(x))) for tag, x in values.items()
    )
    return _record(_event(time, step, _bytes(5, said)))


def text_record(time: float, tag: str, words: str) -> bytes:
    """A record of text, shown as Markdown: a tensor of one string that the text page is told to show."""
    tensor = _number(1, 7) + _bytes(2, _bytes(2, _number(1, 1))) + _bytes(8, words.encode())
    shown_by = _bytes(1, _bytes(1, b"text"))
    value = _bytes(1, f"{tag}/text_summary".encode()) + _bytes(9, shown_by) + _bytes(8, tensor)
    return _record(_event(time, 0, _bytes(5, _bytes(1, value))))


def read_steps_and_times(content: bytes) -> Iterator[tuple[int, float]]:
    """Step and time of each record of a file."""
    for event in read_records(content):
        time, at = struct.unpack_from("<d", event, 1)[0], 9
        step = 0
        if event[at : at + 1] == b"\x10":
            at, shift = at + 1, 0
            while True:
                byte, at = event[at], at + 1
                step |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
        yield step, time


def read_records(content: bytes) -> Iterator[bytes]:
    """The events of a file, up to the first that is damaged."""
    at = 0
    while at + 12 <= len(content):
        (length, check) = struct.unpack_from("<QI", content, at)
        event = content[at + 12 : at + 12 + length]
        rest = content[at + 12 + length : at + 16 + length]
        whole = len(rest) == 4 and check == checksum(content[at : at + 8])
        if not whole or struct.unpack("<I", rest)[0] != checksum(event):
            return
        yield event
        at += 16 + length


def checksum(content: bytes) -> int:
    """CRC-32C, masked as these files want it."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _record(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    return length + struct.pack("<I", checksum(length)) + event + struct.pack("<I", checksum(event))


def _event(time: float, step: int, rest: bytes) -> bytes:
    return b"\x09" + struct.pack("<d", time) + _number(2, step) + rest


def _number(field: int, value: int) -> bytes:
    return bytes([field << 3]) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _f32(x: float) -> float:
    """What is too large for four bytes is infinite."""
    return x if abs(x) <= 3.4028234e38 or x != x else float("inf") * (1 if x > 0 else -1)
