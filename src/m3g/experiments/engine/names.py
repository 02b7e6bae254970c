"""The experiments' names and what each is, without loading any of them."""

from __future__ import annotations

NAMES = {
    "imagenet": "accuracy against the number of augmentations (Table 1)",
    "domainnet": "unseen domains (Table 2, Figures 3 and A1)",
    "eeg": "a few labels on signals of six channels (Table 3)",
    "epsilon": "accuracy against epsilon (Figure 4)",
    "cost": "circular variance against circular standard deviation (Table 4)",
    "overhead": "share of a training step that the loss takes (Figure 5)",
    "iterations": "steps to tolerance against epsilon, Sinkhorn and Newton",
    "branches": "accuracy and memory against the number of views that the student sees",
    "default-set": "M3G and pairwise InfoNCE on the six-view digits, both tuned over a grid of one size",
    "mismatch": "entries of other objects among the six-view digits: found, and what they cost",
    "views": "k-view losses on real sets of 2 to 12 views, each in its best setting",
    "variants": "variants of M3G, of its epsilon and of what it compares, on validation rows",
    "summary": "one page with all finished results beside the published ones",
}
