"""Unseen domains (Table 2, Figures 3 and A1)."""
