"""Simulator, crash matrix and the independent oracle."""
