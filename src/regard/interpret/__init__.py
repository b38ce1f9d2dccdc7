"""What a model looked at: maps on demand, rollout, relevance, interventions, search traces."""

from regard.core.lazy_exports import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, {})
