"""Derivatives of a solve: of its value (Danskin), and of its coupling (implicit function theorem)."""
