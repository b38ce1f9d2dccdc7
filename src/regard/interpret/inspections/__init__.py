"""Inspections, one file per task: how its input is read, and what the axes of its maps are."""
