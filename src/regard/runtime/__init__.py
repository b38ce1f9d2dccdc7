"""How models are run: hardware, dtype and threads, int8, CUDA graphs."""
