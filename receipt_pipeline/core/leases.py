"""Ownership: the fencing token that travels into every write of a worker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FencingToken:
    """The job and the lease epoch under which its holder may write."""

    job_id: str
    lease_epoch: int
