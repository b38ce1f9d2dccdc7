"""Turned into queries and keys, in every layer, after projection: `turn(x, index) -> x`."""
