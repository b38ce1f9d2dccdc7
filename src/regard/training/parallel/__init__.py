"""Training on several processes and devices."""
