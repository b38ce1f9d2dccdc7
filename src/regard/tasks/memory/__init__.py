"""Tasks of memory networks."""
