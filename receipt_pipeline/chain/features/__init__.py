"""Measures how well a receipt agrees with itself, as the features of the risk model."""
