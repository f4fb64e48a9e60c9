"""Scan and result bytes by digest: stored durably, verified on reading, never overwritten."""
