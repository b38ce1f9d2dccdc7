"""Audio datasets."""
