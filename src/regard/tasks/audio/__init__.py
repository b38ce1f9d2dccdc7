"""Tasks over audio."""
