"""Generated datasets."""
