"""Positions added to the tokens, once, before the first layer: `forward(x, index) -> x + p`."""
