"""Finds the fields of a receipt in its text lines."""
