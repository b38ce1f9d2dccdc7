"""Transforms of queries and keys by position, in every layer, after projection: `transform(x, index) -> x`."""
