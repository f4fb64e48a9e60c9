"""Deterministic simulation of many workers under faults."""
