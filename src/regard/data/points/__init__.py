"""Point clouds: shapes composed from a seed, ModelNet10."""
