"""Submissions become accepted jobs: parsed strictly, confined, copied by digest, pinned, answered once."""
