"""Experiments on k augmentations of small images (Tables 1 and 4, Figure 4)."""
