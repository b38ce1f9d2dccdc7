"""Tasks over pen strokes."""
