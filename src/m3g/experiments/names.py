"""The experiments' names and what each is, without loading any of them."""

from __future__ import annotations

NAMES = {
    "domainnet": "unseen domains (Table 2, Figures 3 and A1)",
}
