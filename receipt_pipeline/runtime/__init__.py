"""Processes of a running instance."""
