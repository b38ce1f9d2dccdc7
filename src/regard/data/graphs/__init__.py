"""Graphs: CSL, sets in the TU format, ESOL, Cora and Citeseer."""
