"""What a model looked at: maps on demand, rollout, relevance, interventions, search traces."""
