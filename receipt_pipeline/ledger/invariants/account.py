"""The sets of the release gate."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, and_, case, func, or_, select

from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import TERMINAL_STATES, JobState
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.changes import LedgerReader
from receipt_pipeline.ledger.invariants.records import moments_after_grace, past_deadline_reason, terminal_events
from receipt_pipeline.ledger.journal import EventKind
from receipt_pipeline.ledger.rows import is_terminal
from receipt_pipeline.ledger.schema.jobs import events, items, jobs

NO_TERMINAL_RECORD = "terminal_without_record"


@dataclass(frozen=True, slots=True)
class AccountSets:
    """Job ids as of one moment; accepted = terminal + in flight + unresolved unless it is invalid.

    Attributes:
        as_of: the moment against which deadlines are held.
        terminal: per terminal state the ids that row or journal give it. A job that both sides put
            in different states is in both sets, an unknown job in one: so the sets show it.
        in_flight: inside their own deadlines and not held.
        unresolved: job_id and why, in order of id: no terminal record though one is due.
        unresolved_items: how many items of closed jobs are classed `unresolved`, by job.
        orphan_terminal: ids with a terminal record but no accepted job.
        overlapping: ids whose row and journal, or two records, disagree on the state.
        ordinary: by state how many more jobs are closed, as row and journal agree, or in flight: those
            that were only counted.
    """

    as_of: dt.datetime
    accepted: frozenset[str]
    terminal: Mapping[JobState, frozenset[str]]
    in_flight: frozenset[str]
    unresolved: tuple[tuple[str, str], ...]
    unresolved_items: Mapping[str, int]
    orphan_terminal: tuple[str, ...]
    overlapping: tuple[str, ...]
    ordinary: Mapping[JobState, int]


def account_sets(reader: LedgerReader, *, limits: Limits, cutoff: dt.datetime | None = None) -> AccountSets:
    """Return the sets as of now, or as of a cutoff: a job whose deadline is later is in flight.

    Without a cutoff an open job past its deadline gets the grace in which reconciliation closes it;
    at a cutoff there is none. Jobs submitted after a cutoff do not count.
    """
    as_of = cutoff or reader.now()
    reason = _unresolved_reason(as_of, limits, graceful=cutoff is None)
    filled = FilledSets()
    for row in reader.rows(situations(as_of, reason, terminal_events()).order_by(jobs.c.job_id)):
        filled.add(row)
    # When accepted jobs name as many terminal records as the journal holds, no record is an orphan.
    if _count(reader, events, events.c.kind == EventKind.TERMINAL) != filled.records:
        filled.add_orphans(reader.rows(unaccepted_records()))
    return filled.as_of(as_of, unresolved_items=unresolved_items(reader, as_of))


def _unresolved_reason(as_of: dt.datetime, limits: Limits, *, graceful: bool) -> ColumnElement[str]:
    return past_deadline_reason(*(moments_after_grace(as_of, limits) if graceful else (as_of, as_of)))


class FilledSets:
    """Sets that are filled row by row; `records` counts the terminal records of the rows."""

    def __init__(self) -> None:
        self.records = 0
        self._accepted: set[str] = set()
        self._terminal: dict[JobState, set[str]] = {state: set() for state in TERMINAL_STATES}
        self._in_flight: set[str] = set()
        self._unresolved: list[tuple[str, str]] = []
        self._overlapping: set[str] = set()
        self._orphans: set[str] = set()

    def add(self, row: Mapping[str, Any]) -> None:
        """Put a job where its situation, a row of `situations`, says."""
        job_id = row["job_id"]
        self.records += int(row["terminal_events"] or 0)
        recorded = {row["state_low"], row["state_high"]} - {None}
        self._accepted.add(job_id)
        for state in recorded & self._terminal.keys():
            self._terminal[state].add(job_id)
        if row["why"] is not None:
            self._unresolved.append((job_id, row["why"]))
        elif row["state"] not in TERMINAL_STATES:
            self._in_flight.add(job_id)
        else:
            self._terminal[JobState(row["state"])].add(job_id)
        if recorded - {row["state"]}:
            self._overlapping.add(job_id)

    def add_orphans(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Put each job of `unaccepted_records` into the set that its record names."""
        for row in rows:
            self._orphans.add(str(row["job_id"]))
            if row["state"] in self._terminal and row["job_id"] is not None:
                self._terminal[row["state"]].add(row["job_id"])

    def as_of(
        self,
        moment: dt.datetime,
        *,
        unresolved_items: Mapping[str, int],
        ordinary: Mapping[JobState, int] | None = None,
    ) -> AccountSets:
        """Return what was filled in as the sets of a moment."""
        return AccountSets(
            as_of=moment,
            accepted=frozenset(self._accepted),
            terminal={state: frozenset(ids) for state, ids in self._terminal.items()},
            in_flight=frozenset(self._in_flight),
            unresolved=tuple(sorted(self._unresolved)),
            unresolved_items=unresolved_items,
            orphan_terminal=tuple(sorted(self._orphans)),
            overlapping=tuple(sorted(self._overlapping)),
            ordinary=ordinary or {},
        )


def situations(as_of: dt.datetime, reason: ColumnElement[str], recorded: sa.FromClause) -> sa.Select[Any]:
    """Give of each job accepted by a moment its state, why it is unresolved, and what its records say.

    Args:
        reason: why an open job is unresolved; NULL while it is in flight.
        recorded: terminal events per job, as `terminal_events` gives them.
    """
    why = case(
        (and_(is_terminal(), recorded.c.job_id.is_(None)), NO_TERMINAL_RECORD), (is_terminal(), None), else_=reason
    )
    columns = (recorded.c.state_low, recorded.c.state_high, recorded.c.terminal_events)
    return (
        select(jobs.c.job_id, jobs.c.state, why.label("why"), *columns)
        .select_from(sa.outerjoin(jobs, recorded, recorded.c.job_id == jobs.c.job_id))
        .where(jobs.c.submitted_at <= as_of)
    )


def _count(reader: LedgerReader, table: sa.Table, condition: ColumnElement[bool]) -> int:
    (row,) = reader.rows(select(func.count().label("counted")).select_from(table).where(condition))
    return int(row["counted"])


def unresolved_items(reader: LedgerReader, as_of: dt.datetime) -> dict[str, int]:
    """Count by job the items of closed jobs that are classed `unresolved`."""
    unresolved = items.c.item_class == ItemClass.UNRESOLVED
    if not _count(reader, items, unresolved):
        return {}  # Most ledgers: their jobs need not be joined.
    query = (
        select(items.c.job_id, func.count().label("unresolved"))
        .join(jobs, jobs.c.job_id == items.c.job_id)
        .where(unresolved)
        .where(is_terminal())
        .where(jobs.c.submitted_at <= as_of)
        .group_by(items.c.job_id)
    )
    return {str(row["job_id"]): int(row["unresolved"]) for row in reader.rows(query)}


def unaccepted_records() -> sa.Select[Any]:
    """Select job and state of each terminal record of a job that was never accepted."""
    state = events.c.data["state"].as_string()
    return (
        select(events.c.job_id, state.label("state"))
        .select_from(sa.outerjoin(events, jobs, jobs.c.job_id == events.c.job_id))
        .where(events.c.kind == EventKind.TERMINAL)
        .where(or_(jobs.c.job_id.is_(None), events.c.job_id.is_(None)))
    )


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


def counted_account_sets(reader: LedgerReader, *, limits: Limits, cutoff: dt.datetime | None = None) -> AccountSets:
    """Return the sets as `account_sets` does, with closed and waiting jobs in order only counted.

    Closed jobs and terminal records are compared by state and by a hash of the job, in groups. Where
    number and sum of the hashes agree, the two sides are the same jobs; where they differ, the group's
    jobs are joined with their records one by one. No fault alone can hide in a sum, and two only where
    their hashes of 64 bits are alike; the checks of the ledger itself join every job.
    """
    as_of = cutoff or reader.now()
    reason = _unresolved_reason(as_of, limits, graceful=cutoff is None)
    found = _compare(reader, as_of, reason)
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
        for row in reader.rows(_named(as_of, reason, found.doubted)):
            if row["job_id"] is None:
                ordinary[JobState(row["state"])] += int(row["jobs"])
            else:
                filled.add(row)
    if found.doubted:
        filled.add_orphans(reader.rows(unaccepted_records().where(_in_groups(events.c.job_id, found.doubted))))
    return filled.as_of(as_of, unresolved_items=unresolved_items(reader, as_of), ordinary=ordinary)


def _compare(reader: LedgerReader, as_of: dt.datetime, reason: ColumnElement[str]) -> _Compared:
    """Sum up jobs and terminal records by group and state, and compare the sums."""
    counts: Counter[tuple[int, str, str | None]] = Counter()
    closed: dict[tuple[int, str | None], list[int]] = defaultdict(lambda: [0, 0])
    for row in reader.rows(_summed_jobs(as_of, reason)):
        if row["covered"]:
            counts[row["job_group"], row["state"], row["why"]] += row["counted"]
        if row["state"] in TERMINAL_STATES:
            sums = closed[row["job_group"], row["state"]]
            sums[0] += row["counted"]
            sums[1] += row["hashes"]
    recorded = {
        (row["job_group"], row["state"]): [row["counted"], row["hashes"]] for row in reader.rows(_summed_records())
    }
    sides = closed.keys() | recorded.keys()
    return _Compared(counts, frozenset(side[0] for side in sides if closed.get(side) != recorded.get(side)))


def _summed_jobs(as_of: dt.datetime, reason: ColumnElement[str]) -> sa.Select[Any]:
    why = case((is_terminal(), None), else_=reason)
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
    summed = (func.count().label("counted"), func.sum(each.c.hash).label("hashes"))
    return select(group, *by, *summed).group_by(group, *by)


def _named(as_of: dt.datetime, reason: ColumnElement[str], doubted: Collection[int]) -> sa.Select[Any]:
    """Give one row per job of which there is something to say, and one without id per state of the others."""
    of_doubted = _in_groups(events.c.job_id, doubted)
    in_question = or_(and_(~is_terminal(), reason.is_not(None)), _in_groups(jobs.c.job_id, doubted))
    found = situations(as_of, reason, terminal_events(of_doubted)).where(in_question).subquery("situation").c
    open_in_order = and_(found.state.not_in(sorted(TERMINAL_STATES)), found.terminal_events.is_(None))
    closed_in_order = and_(found.state_low == found.state, found.state_high == found.state)
    in_order = and_(found.why.is_(None), or_(open_in_order, closed_in_order))
    named = case((in_order, sa.null()), else_=found.job_id).label("job_id")
    columns = (named, found.state, found.why, found.state_low, found.state_high, found.terminal_events)
    return select(*columns, func.count().label("jobs")).group_by(*columns)


def _in_groups(job_id: ColumnElement[str], groups: Collection[int]) -> ColumnElement[bool]:
    return func.hash(job_id).bitwise_and(GROUPS - 1).in_(sorted(groups))
