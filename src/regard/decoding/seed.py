"""Seeds of random numbers: the range that torch takes."""

from __future__ import annotations

from regard.core.errors import BadInput

MIN_SEED, MAX_SEED = -(2**63), 2**64 - 1


def validate_seed(seed: int) -> int:
    """Return the seed, or raise if torch does not accept it."""
    if not hasattr(seed, "__index__") or not MIN_SEED <= seed <= MAX_SEED:
        raise BadInput(f"the seed must be a whole number of at most 64 bits, got {seed}")
    return seed
