"""Token and image shards: packing, index, reading."""
