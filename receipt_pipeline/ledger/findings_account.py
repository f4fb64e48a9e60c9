"""The sets that the release gate is judged on: accepted, terminal, in flight, unresolved."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, case, func, or_, select

from receipt_pipeline.core.item_classes import ItemClass
from receipt_pipeline.core.job_lifecycle import TERMINAL_STATES, JobState
from receipt_pipeline.core.limits import ServiceLimits
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.findings import is_terminal, terminal_events, unresolved_because
from receipt_pipeline.ledger.journal import EventKind
from receipt_pipeline.ledger.tables import events, items, jobs

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
        unresolved_items: items of closed jobs that are classed `unresolved`.
        orphan_terminal: ids with a terminal record that nobody accepted.
        overlapping: ids whose row and journal, or two records, disagree on the state.
        ordinary: how many more jobs are closed, by state, as row and journal agree: those that were
            only counted.
    """

    as_of: dt.datetime
    accepted: frozenset[str]
    terminal: Mapping[JobState, frozenset[str]]
    in_flight: frozenset[str]
    unresolved: tuple[tuple[str, str], ...]
    unresolved_items: int
    orphan_terminal: tuple[str, ...]
    overlapping: tuple[str, ...]
    ordinary: Mapping[JobState, int]


def account_sets(
    tx: LedgerTransaction,
    *,
    limits: ServiceLimits,
    cutoff: dt.datetime | None = None,
    count_ordinary: bool = False,
) -> AccountSets:
    """Return the sets as of now, or as of a cutoff: a job whose deadline lies after it is in flight.

    Without a cutoff an open job past its deadline gets the grace in which reconciliation closes it;
    at a cutoff there is none. Jobs submitted after a cutoff do not count.

    Args:
        count_ordinary: only count the closed jobs of which there is nothing to say; no set holds them.
    """
    as_of = cutoff or tx.now()
    sets: dict[JobState, set[str]] = {state: set() for state in JobState if state in TERMINAL_STATES}
    accepted: set[str] = set()
    in_flight: set[str] = set()
    unresolved: list[tuple[str, str]] = []
    overlapping: set[str] = set()
    standings = _standings(as_of, limits, graceful=cutoff is None)
    ordinary: dict[JobState, int] = {}
    records_named = 0
    for row in tx.rows(_ordinary_counted(standings) if count_ordinary else standings):
        job_id = row["job_id"]
        records_named += int(row["terminal_events"] or 0)
        if job_id is None:
            ordinary[JobState(row["state"])] = int(row["jobs"])
            continue
        told = {row["state_low"], row["state_high"]} - {None}
        accepted.add(job_id)
        for state in told & sets.keys():
            sets[state].add(job_id)
        if row["why"] is not None:
            unresolved.append((job_id, row["why"]))
        elif row["state"] not in TERMINAL_STATES:
            in_flight.add(job_id)
        else:
            sets[JobState(row["state"])].add(job_id)
        if told - {row["state"]}:
            overlapping.add(job_id)
    # Also puts each orphan into its set, so it comes before these are frozen.
    orphans = () if _count_terminal_records(tx) == records_named else _orphans(tx, sets)
    return AccountSets(
        as_of=as_of,
        accepted=frozenset(accepted),
        terminal={state: frozenset(ids) for state, ids in sets.items()},
        in_flight=frozenset(in_flight),
        unresolved=tuple(sorted(unresolved)),
        unresolved_items=_unresolved_items(tx, as_of),
        orphan_terminal=orphans,
        overlapping=tuple(sorted(overlapping)),
        ordinary=ordinary,
    )


def _ordinary_counted(standings: sa.Select[Any]) -> sa.Select[Any]:
    """Give one row per job of which there is something to say, and without an id the number of the others.

    A job is ordinary when it is closed and its journal says the same once.
    """
    told = standings.order_by(None).subquery("standing").c
    agrees = and_(told.why.is_(None), told.state_low == told.state, told.state_high == told.state)
    named = case((agrees, sa.null()), else_=told.job_id).label("job_id")
    columns = (named, told.state, told.why, told.state_low, told.state_high)
    counted = (func.count().label("jobs"), func.sum(told.terminal_events).label("terminal_events"))
    return select(*columns, *counted).group_by(*columns)


def _standings(as_of: dt.datetime, limits: ServiceLimits, *, graceful: bool) -> sa.Select[Any]:
    told = terminal_events()
    why = case(
        (and_(is_terminal(), told.c.job_id.is_(None)), NO_TERMINAL_RECORD),
        (is_terminal(), None),
        else_=unresolved_because(as_of, limits, graceful=graceful),
    )
    said = (told.c.state_low, told.c.state_high, told.c.terminal_events)
    return (
        select(jobs.c.job_id, jobs.c.state, why.label("why"), *said)
        .select_from(sa.outerjoin(jobs, told, told.c.job_id == jobs.c.job_id))
        .where(jobs.c.submitted_at <= as_of)
        .order_by(jobs.c.job_id)
    )


def _count_terminal_records(tx: LedgerTransaction) -> int:
    """Count the journal's terminal records: when accepted jobs name as many, none is an orphan's."""
    return int(tx.scalar(select(func.count()).where(events.c.kind == EventKind.TERMINAL)) or 0)


def _unresolved_items(tx: LedgerTransaction, as_of: dt.datetime) -> int:
    unresolved = items.c.item_class == ItemClass.UNRESOLVED
    if not tx.scalar(select(func.count()).select_from(items).where(unresolved)):
        return 0  # Most ledgers; joining them with all their jobs only tells when the jobs were submitted.
    query = (
        select(func.count())
        .select_from(items)
        .join(jobs, jobs.c.job_id == items.c.job_id)
        .where(unresolved)
        .where(is_terminal())
        .where(jobs.c.submitted_at <= as_of)
    )
    return int(tx.scalar(query) or 0)


def _orphans(tx: LedgerTransaction, sets: dict[JobState, set[str]]) -> tuple[str, ...]:
    """Return the jobs nobody accepted that a terminal event names, and put them into their set."""
    state = events.c.data["state"].as_string()
    query = (
        select(events.c.job_id, state.label("state"))
        .select_from(sa.outerjoin(events, jobs, jobs.c.job_id == events.c.job_id))
        .where(events.c.kind == EventKind.TERMINAL)
        .where(or_(jobs.c.job_id.is_(None), events.c.job_id.is_(None)))
    )
    rows = tx.rows(query)
    for row in rows:
        if row["state"] in sets and row["job_id"] is not None:
            sets[row["state"]].add(row["job_id"])
    return tuple(sorted({str(row["job_id"]) for row in rows}))
