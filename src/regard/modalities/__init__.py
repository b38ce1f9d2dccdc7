"""What people hand to a model and get back: typed inputs and outputs."""
