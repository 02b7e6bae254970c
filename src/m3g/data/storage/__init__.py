"""Reading arrays from files safely."""
