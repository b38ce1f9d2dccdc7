"""Checkpoints of timm."""
