"""Checkpoints of training runs: whole or not there, sharded, resumable to the bit."""
