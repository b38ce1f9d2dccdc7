"""What can be looked at, one file a task: how its input is read, and what the sides of its maps are."""
