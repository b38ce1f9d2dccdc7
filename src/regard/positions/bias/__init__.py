"""Positions added to the scores, in every layer: `bias(queries, keys) -> Bias`, a value that all layers share."""
