"""The pinned classification chain: stages from value to value, each under its own version."""
