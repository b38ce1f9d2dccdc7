"""Recorded episodes of states, actions and rewards."""
