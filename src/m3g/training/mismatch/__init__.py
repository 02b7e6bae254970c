"""Entries that do not belong to their row: detected during training, reported by `m3g audit`."""
