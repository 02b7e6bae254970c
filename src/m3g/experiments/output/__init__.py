"""Tables, paired comparisons, ranks, figures and the published numbers."""
