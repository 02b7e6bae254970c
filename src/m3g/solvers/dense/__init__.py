"""Any multiway cost: scaling and Newton steps on the full tensor."""
