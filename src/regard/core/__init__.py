"""What every other room stands on: shapes, specs, configurations, errors, traces. Imports no other room."""
