"""Entries that do not belong to their row: estimated during training, reported by `m3g audit`."""
