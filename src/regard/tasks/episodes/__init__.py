"""Tasks over episodes of states, actions and rewards."""
