"""How models are run: hardware, dtype and threads, int8, CUDA graphs."""

from regard.core.lazy_exports import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, {})
