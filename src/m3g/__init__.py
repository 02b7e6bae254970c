"""Learn from k views of the same objects with the multi-marginal matching gap."""
