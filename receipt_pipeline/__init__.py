"""Receipt scans as immutable jobs: accepted, classified under pinned identities, and accounted for."""

__version__ = "0.1.0"
