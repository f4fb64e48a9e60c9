"""Guarded transitions of jobs, one per function."""
