"""Handwriting as pen strokes."""
