"""Core: shapes, specs, configs and their validation, errors, traces, plugins. Imports no other package."""
