"""The experiments' names and what each is, without loading any of them."""

from __future__ import annotations

NAMES = {
    "default-set": "M3G and pairwise InfoNCE on the six-view digits, both tuned over a grid of one size",
    "domainnet": "unseen domains (Table 2, Figures 3 and A1)",
    "mismatch": "entries of other objects among the six-view digits: found, and what they cost",
}
