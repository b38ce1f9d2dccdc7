"""Where training writes its numbers: a file, TensorBoard, Weights & Biases."""
