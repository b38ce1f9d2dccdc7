"""Tasks over graphs."""
