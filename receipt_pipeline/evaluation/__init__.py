"""Evaluation: what the chain is worth on scans and transcripts that it was not trained on."""
