"""A package, so that its files may be called as those of other rooms are."""
