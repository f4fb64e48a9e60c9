"""Invariants over terminal records, balance and owners."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, and_, bindparam, case, exists, func, literal, or_, select

from receipt_pipeline.core.items import KEPT_CLASSES, ItemClass
from receipt_pipeline.core.lifecycle import HELD_PHASES, TERMINAL_STATES, JobState, TerminalClass
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import OPEN, InvestigationKind
from receipt_pipeline.ledger.journal import EventKind
from receipt_pipeline.ledger.schema.effects import investigations
from receipt_pipeline.ledger.schema.jobs import events, items, jobs
from receipt_pipeline.ledger.schema.types import UtcMicros

Query = sa.Select[Any] | sa.CompoundSelect[Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one query over the ledger found.

    Attributes:
        name: the same in checks, investigations and documentation.
        meaning: one sentence that says what a row of it means.
        rows: the offenders, `job_id` first.
        query: what found them, for the database of `dialect`, and what its parameters were.
    """

    name: str
    meaning: str
    rows: list[dict[str, Any]]
    query: Query
    dialect: sa.Dialect
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def query_text(self) -> str:
        """Return the SQL that finds the rows, runnable as it stands on this ledger's database."""
        query = self.query.params(self.parameters)
        return str(query.compile(dialect=self.dialect, compile_kwargs={"literal_binds": True}))


def find(
    tx: LedgerTransaction,
    *,
    name: str,
    meaning: str,
    query: Query,
    parameters: Mapping[str, Any] | None = None,
) -> Finding:
    """Run a query and keep its text with what it found."""
    given = dict(parameters or {})
    return Finding(name, meaning, tx.rows(query, given), query, tx.dialect, given)


def is_terminal() -> ColumnElement[bool]:
    """Return the condition that a job's row is closed."""
    return jobs.c.state.in_(sorted(TERMINAL_STATES))


def terminal_events(*conditions: ColumnElement[bool]) -> sa.Subquery:
    """Return per job how many terminal events (that meet conditions) the journal holds, and what they say."""
    data = events.c.data
    return (
        select(
            events.c.job_id,
            func.count().label("terminal_events"),
            func.min(data["state"].as_string()).label("state_low"),
            func.max(data["state"].as_string()).label("state_high"),
            func.max(data["terminal_class"].as_string()).label("terminal_class"),
            func.max(data["result_digest"].as_string()).label("result_digest"),
        )
        .where(events.c.kind == EventKind.TERMINAL, *conditions)
        .group_by(events.c.job_id)
        .subquery("told")
    )


def terminal_record_conflicts(tx: LedgerTransaction) -> Finding:
    """Find jobs whose row and journal do not tell of one terminal record, and records of unknown jobs."""
    return find(
        tx,
        name="terminal_record_conflicts",
        meaning="a closed job has one terminal record that agrees with its row, an open job has none",
        query=_terminal_record_conflicts(),
    )


# Every reconciliation asks what follows; a question that never changes is built once.
@functools.cache
def _terminal_record_conflicts() -> Query:
    told = terminal_events()
    differs = or_(
        told.c.state_low != jobs.c.state,
        told.c.state_high != jobs.c.state,
        told.c.terminal_class != jobs.c.terminal_class,
        func.coalesce(told.c.result_digest, "") != func.coalesce(jobs.c.result_digest, ""),
    )
    fault = case(
        (and_(is_terminal(), told.c.job_id.is_(None)), "terminal_without_record"),
        (and_(~is_terminal(), told.c.job_id.is_not(None)), "record_of_open_job"),
        (told.c.terminal_events > 1, "several_records"),
        (and_(is_terminal(), differs), "record_differs"),
    )
    recorded = (
        told.c.terminal_events,
        told.c.state_low.label("recorded_state"),
        told.c.terminal_class.label("recorded_class"),
    )
    accepted = select(
        jobs.c.job_id, fault.label("fault"), jobs.c.state, jobs.c.terminal_class, *recorded
    ).select_from(sa.outerjoin(jobs, told, told.c.job_id == jobs.c.job_id))
    unknown = (
        select(
            told.c.job_id,
            literal("record_of_unknown_job").label("fault"),
            jobs.c.state,
            jobs.c.terminal_class,
            *recorded,
        )
        .select_from(sa.outerjoin(told, jobs, jobs.c.job_id == told.c.job_id))
        .where(jobs.c.job_id.is_(None))
    )
    # Two halves: SQLite answers a full join by comparing every row with every other.
    both = sa.union_all(accepted, unknown).subquery("both_sides")
    return select(both).where(both.c.fault.is_not(None)).order_by(both.c.job_id)


def orphan_terminals(tx: LedgerTransaction) -> Finding:
    """Find terminal events that name no accepted job."""
    told = terminal_events()
    query = (
        select(told.c.job_id, told.c.terminal_events, told.c.state_low.label("recorded_state"))
        .select_from(sa.outerjoin(told, jobs, jobs.c.job_id == told.c.job_id))
        .where(jobs.c.job_id.is_(None))
        .order_by(told.c.job_id)
    )
    return find(
        tx, name="orphan_terminals", meaning="a terminal record names a job nobody accepted", query=query
    )


def unbalanced_items(tx: LedgerTransaction) -> Finding:
    """Find jobs whose items do not sum to the accepted scope, or contradict the terminal class."""
    return find(
        tx,
        name="unbalanced_items",
        meaning="the item classes of a job sum to its accepted scope and agree with its terminal class",
        query=_unbalanced_items(),
    )


@functools.cache
def _unbalanced_items() -> Query:
    kept = case((items.c.item_class.in_(sorted(KEPT_CLASSES)), 1), else_=0)
    counted = (
        select(
            items.c.job_id,
            func.count().label("listed"),
            func.count(items.c.item_class).label("classed"),
            func.sum(kept).label("kept"),
        )
        .group_by(items.c.job_id)
        .subquery("counted")
    )
    listed, classed = func.coalesce(counted.c.listed, 0), func.coalesce(counted.c.classed, 0)
    fault = case(
        (listed != jobs.c.items_requested, "scope_changed"),
        (and_(is_terminal(), classed != jobs.c.items_requested), "item_without_class"),
        (
            and_(jobs.c.terminal_class == TerminalClass.COMPLETE, counted.c.kept != jobs.c.items_requested),
            "complete_without_all",
        ),
        (
            and_(
                jobs.c.terminal_class == TerminalClass.PARTIAL,
                or_(counted.c.kept == 0, counted.c.kept == jobs.c.items_requested),
            ),
            "partial_without_part",
        ),
    )
    balanced = (
        select(
            jobs.c.job_id,
            fault.label("fault"),
            jobs.c.state,
            jobs.c.items_requested.label("requested"),
            listed.label("listed"),
            classed.label("classed"),
        )
        .select_from(sa.outerjoin(jobs, counted, counted.c.job_id == jobs.c.job_id))
        .subquery("balanced")
    )
    return select(balanced).where(balanced.c.fault.is_not(None)).order_by(balanced.c.job_id)


def closing_grace_s(limits: Limits) -> float:
    """Return how long after a limit closing attempts may need before the job counts as stuck."""
    return limits.work.overrun_grace_s + limits.work.closing_attempts_max * limits.work.lease_ttl_s


def unresolved_because(now: dt.datetime, limits: Limits, *, graceful: bool) -> ColumnElement[str]:
    """Return why an open job is past its own deadlines or held; NULL while it is in flight (D2, D3).

    `graceful` leaves reconciliation the grace in which it expires and overruns by itself.
    """
    if not graceful:
        return _unresolved_because(now, now)
    return _unresolved_because(*_after_grace(now, limits))


# A time, or the parameter that stands for it.
Moment = dt.datetime | sa.BindParameter[Any]


def _after_grace(now: dt.datetime, limits: Limits) -> tuple[dt.datetime, dt.datetime]:
    """Return which limits have passed with the grace of open jobs by now, and with that of closing ones."""
    return (
        now - dt.timedelta(seconds=limits.work.overrun_grace_s),
        now - dt.timedelta(seconds=closing_grace_s(limits)),
    )


def _unresolved_because(late: Moment, closing_late: Moment) -> ColumnElement[str]:
    def overtaken(since: Moment) -> ColumnElement[bool]:
        return or_(jobs.c.processing_deadline <= since, jobs.c.cutoff_at <= since)

    running = jobs.c.state == JobState.RUNNING
    return case(
        (jobs.c.phase.in_(sorted(HELD_PHASES)), jobs.c.phase),
        (and_(jobs.c.state == JobState.ACCEPTED, jobs.c.queue_deadline < late), "queue_overdue"),
        (and_(running, jobs.c.close_cause.is_(None), overtaken(late)), "processing_overdue"),
        (and_(running, jobs.c.close_cause.is_not(None), overtaken(closing_late)), "closing_overdue"),
        else_=None,
    )


def _owned_question(now: Moment, principals: list[str] | sa.BindParameter[Any]) -> ColumnElement[bool]:
    return exists(
        select(investigations.c.investigation_id)
        .where(investigations.c.job_id == jobs.c.job_id)
        .where(investigations.c.state == OPEN)
        .where(investigations.c.owner.in_(principals))
        .where(investigations.c.deadline_at >= now)
    )


def missing_terminal(tx: LedgerTransaction, *, limits: Limits) -> Finding:
    """Find open jobs past their own deadlines, or held, and whether an owned open question names each."""
    now = tx.now()
    late, closing_late = _after_grace(now, limits)
    return find(
        tx,
        name="missing_terminal",
        meaning="an accepted job past its own deadlines, or held, has no terminal record",
        query=_missing_terminal(),
        parameters={
            "now": now,
            "late": late,
            "closing_late": closing_late,
            "principals": sorted(limits.staffing.principals),
        },
    )


@functools.cache
def _missing_terminal() -> Query:
    fault = _unresolved_because(
        bindparam("late", type_=UtcMicros()), bindparam("closing_late", type_=UtcMicros())
    )
    owned = _owned_question(
        bindparam("now", type_=UtcMicros()), bindparam("principals", expanding=True, type_=sa.String())
    )
    return (
        select(
            jobs.c.job_id,
            fault.label("fault"),
            jobs.c.state,
            jobs.c.phase,
            jobs.c.lease_epoch,
            owned.label("owned"),
        )
        .where(~is_terminal())
        .where(fault.is_not(None))
        .order_by(jobs.c.job_id)
    )


def unowned_jobs(tx: LedgerTransaction, *, limits: Limits) -> Finding:
    """Find accepted jobs that are neither terminal, nor in flight, nor an owned open question (D13).

    A closed job with unresolved items counts too when no question about them was ever opened, or the
    open one is unowned.
    """
    now = tx.now()
    why = unresolved_because(now, limits, graceful=True)
    asked = select(investigations.c.investigation_id).where(
        investigations.c.job_id == jobs.c.job_id,
        investigations.c.kind == InvestigationKind.UNRESOLVED_ITEMS,
    )
    unresolved_items = exists(
        select(items.c.ordinal)
        .where(items.c.job_id == jobs.c.job_id)
        .where(items.c.item_class == ItemClass.UNRESOLVED)
    )
    settled = exists(asked.where(or_(investigations.c.state != OPEN, _is_owned(now, limits))))
    stuck = (
        select(jobs.c.job_id, why.label("fault"), jobs.c.state, jobs.c.phase)
        .where(~is_terminal())
        .where(why.is_not(None))
        .where(~_owned_question(now, sorted(limits.staffing.principals)))
    )
    unasked = (
        select(
            jobs.c.job_id,
            literal("unresolved_items").label("fault"),
            jobs.c.state,
            jobs.c.phase,
        )
        .where(is_terminal())
        .where(unresolved_items)
        .where(~settled)
    )
    both = sa.union_all(stuck, unasked).subquery("unowned")
    return find(
        tx,
        name="unowned_jobs",
        meaning="every accepted job is terminal, in flight, or an owned question inside its deadline",
        query=select(both).order_by(both.c.job_id),
    )


def _is_owned(now: dt.datetime, limits: Limits) -> ColumnElement[bool]:
    return and_(
        investigations.c.owner.in_(sorted(limits.staffing.principals)),
        investigations.c.deadline_at >= now,
    )


def unowned_investigations(tx: LedgerTransaction, *, limits: Limits) -> Finding:
    """Find open investigations past their deadline or whose owner is no active principal (D13)."""
    query = (
        select(
            investigations.c.job_id,
            investigations.c.investigation_id,
            investigations.c.kind,
            investigations.c.subject,
            investigations.c.owner,
            investigations.c.deadline_at,
        )
        .where(investigations.c.state == OPEN)
        .where(~_is_owned(tx.now(), limits))
        .order_by(investigations.c.deadline_at, investigations.c.investigation_id)
    )
    return find(
        tx,
        name="unowned_investigations",
        meaning="an open investigation is past its deadline or its owner is no active principal",
        query=query,
    )
