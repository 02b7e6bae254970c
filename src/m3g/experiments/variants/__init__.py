"""Variants of M3G."""
