"""Attention maps of a running model, with its fast kernels on."""
