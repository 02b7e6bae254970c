"""Tests of the guarantees with random problems, kills, damage and malicious input: `make fuzz`."""
