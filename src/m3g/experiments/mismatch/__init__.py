"""Training rows with mismatched views."""
