"""Execution of a run specification."""
