"""Tasks of memory networks: stories to answer questions about, tapes to copy."""
