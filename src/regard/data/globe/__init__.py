"""Numbers on the globe: land and ocean."""
