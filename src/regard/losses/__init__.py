"""Losses: fused linear cross-entropy, CTC, REINFORCE baselines."""
