"""Text datasets."""
