"""Derivatives of a solution: of its value by Danskin's theorem, of its coupling by the implicit function theorem."""
