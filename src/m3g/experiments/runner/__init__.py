"""From a run specification to a finished run."""
