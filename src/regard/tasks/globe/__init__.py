"""Tasks over places on the globe."""
