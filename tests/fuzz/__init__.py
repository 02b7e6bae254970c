"""Random problems, kills, damage and hostile input, tried against what the library promises: `make fuzz`."""
