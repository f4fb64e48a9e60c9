"""Balances the account over a copy of many jobs: those of which there is nothing to say are only counted."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, and_, case, func, or_, select

from receipt_pipeline.core.job_lifecycle import TERMINAL_STATES, JobState
from receipt_pipeline.core.limits import ServiceLimits
from receipt_pipeline.ledger.copied_ledger import CopiedLedger
from receipt_pipeline.ledger.findings import is_terminal, terminal_events, unresolved_because
from receipt_pipeline.ledger.findings_account import (
    AccountSets,
    FilledSets,
    standings,
    unaccepted_records,
    unresolved_items,
)
from receipt_pipeline.ledger.journal import EventKind
from receipt_pipeline.ledger.tables import events, jobs

# A power of two: so many groups are compared, and a fault makes the jobs of its group be joined.
GROUPS = 256


@dataclass(frozen=True, slots=True)
class _Compared:
    """What one pass over each side found.

    Attributes:
        counts: jobs by group, state and why they are unresolved, of those that the account covers.
        doubted: the groups in which closed jobs and terminal records are not the same.
    """

    counts: Mapping[tuple[int, str, str | None], int]
    doubted: frozenset[int]


def counted_account_sets(
    tx: CopiedLedger, *, limits: ServiceLimits, cutoff: dt.datetime | None = None
) -> AccountSets:
    """Return the sets as `account_sets` does, with closed and waiting jobs in order only counted.

    Closed jobs and terminal records are told apart by state and by a hash of the job, in groups. Where
    number and sum of the hashes agree, the two sides are the same jobs; where they differ, the group's
    jobs are joined with their records one by one. No fault alone can hide in a sum, and two only where
    their hashes of 64 bits are alike; the checks of the ledger itself join every job.
    """
    as_of = cutoff or tx.now()
    because = unresolved_because(as_of, limits, graceful=cutoff is None)
    found = _compare(tx, as_of, because)
    ordinary: Counter[JobState] = Counter()
    to_be_named = bool(found.doubted)
    for (group, state, why), jobs_there in found.counts.items():
        if group in found.doubted:
            continue
        if why is None:
            ordinary[JobState(state)] += jobs_there
        else:
            to_be_named = True
    filled = FilledSets()
    if to_be_named:
        for row in tx.rows(_named(as_of, because, found.doubted)):
            if row["job_id"] is None:
                ordinary[JobState(row["state"])] += int(row["jobs"])
            else:
                filled.add(row)
    if found.doubted:
        filled.add_orphans(tx.rows(unaccepted_records().where(_in_groups(events.c.job_id, found.doubted))))
    return filled.as_of(as_of, unresolved_items=unresolved_items(tx, as_of), ordinary=ordinary)


def _compare(tx: CopiedLedger, as_of: dt.datetime, because: ColumnElement[str]) -> _Compared:
    """Sum up jobs and terminal records by group and state, and compare the sums."""
    counts: Counter[tuple[int, str, str | None]] = Counter()
    closed: dict[tuple[int, str | None], list[int]] = defaultdict(lambda: [0, 0])
    for row in tx.rows(_summed_jobs(as_of, because)):
        if row["covered"]:
            counts[row["job_group"], row["state"], row["why"]] += row["told"]
        if row["state"] in TERMINAL_STATES:
            sums = closed[row["job_group"], row["state"]]
            sums[0] += row["told"]
            sums[1] += row["hashes"]
    recorded = {
        (row["job_group"], row["state"]): [row["told"], row["hashes"]] for row in tx.rows(_summed_records())
    }
    sides = closed.keys() | recorded.keys()
    return _Compared(counts, frozenset(side[0] for side in sides if closed.get(side) != recorded.get(side)))


def _summed_jobs(as_of: dt.datetime, because: ColumnElement[str]) -> sa.Select[Any]:
    why = case((is_terminal(), None), else_=because)
    each = select(
        func.hash(jobs.c.job_id).label("hash"),
        jobs.c.state,
        why.label("why"),
        (jobs.c.submitted_at <= as_of).label("covered"),
    ).subquery("each")
    return _summed(each, each.c.state, each.c.why, each.c.covered)


def _summed_records() -> sa.Select[Any]:
    state = events.c.data["state"].as_string().label("state")
    each = (
        select(func.hash(events.c.job_id).label("hash"), state)
        .where(events.c.kind == EventKind.TERMINAL)
        .subquery("each")
    )
    return _summed(each, each.c.state)


def _summed(each: sa.Subquery, *by: ColumnElement[Any]) -> sa.Select[Any]:
    group = each.c.hash.bitwise_and(GROUPS - 1).label("job_group")
    summed = (func.count().label("told"), func.sum(each.c.hash).label("hashes"))
    return select(group, *by, *summed).group_by(group, *by)


def _named(as_of: dt.datetime, because: ColumnElement[str], doubted: Collection[int]) -> sa.Select[Any]:
    """Give one row per job of which there is something to say, and one without id per state of the others."""
    of_doubted = _in_groups(events.c.job_id, doubted)
    in_question = or_(and_(~is_terminal(), because.is_not(None)), _in_groups(jobs.c.job_id, doubted))
    told = standings(as_of, because, terminal_events(of_doubted)).where(in_question).subquery("standing").c
    open_in_order = and_(told.state.not_in(sorted(TERMINAL_STATES)), told.terminal_events.is_(None))
    closed_in_order = and_(told.state_low == told.state, told.state_high == told.state)
    in_order = and_(told.why.is_(None), or_(open_in_order, closed_in_order))
    named = case((in_order, sa.null()), else_=told.job_id).label("job_id")
    columns = (named, told.state, told.why, told.state_low, told.state_high, told.terminal_events)
    return select(*columns, func.count().label("jobs")).group_by(*columns)


def _in_groups(job_id: ColumnElement[str], groups: Collection[int]) -> ColumnElement[bool]:
    return func.hash(job_id).bitwise_and(GROUPS - 1).in_(sorted(groups))
