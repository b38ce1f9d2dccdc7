"""Episodes of states, actions and rewards."""
