"""Core: shapes, specs, configs and their validation, errors, traces, plugins. Imports no other package."""

from regard.core.lazy_exports import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, {})
