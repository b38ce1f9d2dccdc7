"""Point clouds: shapes and scenes composed from a seed, ModelNet10."""
