"""Decoding: greedy, beam, sampling, constrained and CTC search over every model that can step."""
