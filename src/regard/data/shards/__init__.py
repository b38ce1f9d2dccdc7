"""Token shards: packing, writing, reading."""
