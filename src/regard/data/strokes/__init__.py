"""Data sets of pen strokes."""
