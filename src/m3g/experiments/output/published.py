"""Published numbers in percent: Tables 1 to 4 of the ICML 2024 version."""

from __future__ import annotations

METHODS = ("byol-ave", "byol-pwe", "infonce-ave", "infonce-pwe", "m3g")

# Table 1, ImageNet-1k, linear probe, by the number of views: (mean, deviation). For k = 2, the `-ave` and `-pwe` forms
# of a loss are equal.
IMAGENET = {
    k: dict(zip(METHODS, values))
    for k, values in {
        2: ((74.62, 0.14), (74.62, 0.14), (74.61, 0.16), (74.61, 0.16), (74.75, 0.48)),
        3: ((74.60, 0.16), (75.16, 0.09), (74.24, 0.13), (75.36, 0.10), (75.61, 0.12)),
        4: ((75.04, 0.18), (75.06, 0.10), (74.80, 0.09), (75.26, 0.16), (75.75, 0.11)),
    }.items()
}

# Table 2, DomainNet, accuracy on the unseen domain: (mean, deviation).
DOMAINNET = {
    domain: dict(zip(METHODS, values))
    for domain, values in {
        "clipart": ((24.1, 0.2), (9.6, 4.8), (23.2, 0.4), (6.9, 10.3), (32.4, 0.3)),
        "infograph": ((10.2, 0.1), (5.8, 0.8), (11.0, 0.2), (10.1, 0.4), (12.2, 0.1)),
        "painting": ((28.3, 0.1), (21.3, 0.9), (30.6, 0.6), (24.7, 1.8), (31.3, 0.1)),
        "quickdraw": ((7.8, 0.2), (3.4, 2.2), (8.8, 0.2), (8.5, 0.5), (10.4, 0.3)),
        "real": ((43.1, 0.3), (30.9, 9.3), (44.6, 0.1), (42.0, 0.6), (46.3, 0.2)),
        "sketch": ((21.6, 0.6), (10.1, 2.1), (24.9, 0.1), (20.5, 1.6), (26.5, 0.4)),
    }.items()
}

# Table 3, EEG, by samples per class.
EEG = {
    "infonce-pwe, n = 64": {10: 35.5, 50: 49.3, 100: 52.2, 1000: 56.3},
    "m3g, n = 16": {10: 36.6, 50: 49.2, 100: 56.1, 1000: 64.6},
}

# Table 4, ImageNet-1k, by the number of views.
COST = {2: {"cv": 74.75, "csd": 73.81}, 3: {"cv": 75.61, "csd": 75.63}, 4: {"cv": 75.75, "csd": 75.73}}
