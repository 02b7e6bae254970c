"""All k-view losses on real multi-view data sets."""
