"""Tasks of networks with an external memory."""
