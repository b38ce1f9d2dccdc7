"""Tasks over point clouds."""
