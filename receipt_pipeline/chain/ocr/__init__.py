"""Reads the text lines of a page."""
