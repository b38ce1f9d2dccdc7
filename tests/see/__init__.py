"""A package, so that test files may share names with those of other folders."""
