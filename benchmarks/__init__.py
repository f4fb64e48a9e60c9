"""Ratios measured side by side in one run; never absolute promises, never a test."""
