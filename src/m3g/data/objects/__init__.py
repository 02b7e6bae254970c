"""A table of objects: one row each, one column per view, of any kind."""

from m3g.data.objects.module import Objects

__all__ = ["Objects"]
