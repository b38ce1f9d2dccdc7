"""Audio data sets."""
