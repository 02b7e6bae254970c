"""Training rows whose views do not belong together."""
