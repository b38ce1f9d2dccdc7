"""Metrics: BLEU, ROUGE, WER, F1, ... each tested equal to its peer."""
