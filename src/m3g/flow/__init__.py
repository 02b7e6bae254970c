"""Gradient flow of a loss on free points, drawn as an animation."""
