"""Settings of a run: defaults, validation, per-view options."""
