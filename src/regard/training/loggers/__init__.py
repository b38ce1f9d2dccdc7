"""Training logs: metrics.jsonl, the terminal, TensorBoard, Weights & Biases."""
