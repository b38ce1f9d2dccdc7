"""Data sets made from seeds."""
