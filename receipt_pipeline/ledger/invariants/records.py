"""Invariants over terminal records, balance and owners."""

from __future__ import annotations

import datetime as dt
import functools

import sqlalchemy as sa
from sqlalchemy import ColumnElement, and_, bindparam, case, exists, func, literal, or_, select

from receipt_pipeline.core.alerts import AlertKind
from receipt_pipeline.core.items import KEPT_CLASSES, ItemClass
from receipt_pipeline.core.lifecycle import HELD_PHASES, JobState, TerminalClass
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import ITEMS_UNBALANCED, TERMINAL_CONFLICT, TERMINAL_MISSING
from receipt_pipeline.ledger.changes import LedgerReader
from receipt_pipeline.ledger.invariants.invariant import JOB_LEDGER, Bounds, Invariant, Investigate, Query, Row
from receipt_pipeline.ledger.investigations import OPEN, InvestigationKind
from receipt_pipeline.ledger.journal import EventKind
from receipt_pipeline.ledger.rows import is_terminal
from receipt_pipeline.ledger.schema.effects import investigations
from receipt_pipeline.ledger.schema.jobs import events, items, jobs
from receipt_pipeline.ledger.schema.types import UtcMicros


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
        .subquery("recorded")
    )


# Queries that every reconciliation runs are built once: building costs more than running them.
@functools.cache
def _terminal_record_conflicts() -> Query:
    recorded = terminal_events()
    differs = or_(
        recorded.c.state_low != jobs.c.state,
        recorded.c.state_high != jobs.c.state,
        recorded.c.terminal_class != jobs.c.terminal_class,
        func.coalesce(recorded.c.result_digest, "") != func.coalesce(jobs.c.result_digest, ""),
    )
    fault = case(
        (and_(is_terminal(), recorded.c.job_id.is_(None)), "terminal_without_record"),
        (and_(~is_terminal(), recorded.c.job_id.is_not(None)), "record_of_open_job"),
        (recorded.c.terminal_events > 1, "several_records"),
        (and_(is_terminal(), differs), "record_differs"),
    )
    columns = (
        jobs.c.state,
        jobs.c.terminal_class,
        recorded.c.terminal_events,
        recorded.c.state_low.label("recorded_state"),
        recorded.c.terminal_class.label("recorded_class"),
    )
    accepted = select(jobs.c.job_id, fault.label("fault"), *columns).select_from(
        sa.outerjoin(jobs, recorded, recorded.c.job_id == jobs.c.job_id)
    )
    unknown = (
        select(recorded.c.job_id, literal("record_of_unknown_job").label("fault"), *columns)
        .select_from(sa.outerjoin(recorded, jobs, jobs.c.job_id == recorded.c.job_id))
        .where(jobs.c.job_id.is_(None))
    )
    # Two halves: SQLite answers a full join by comparing every row with every other.
    both = sa.union_all(accepted, unknown).subquery("both_sides")
    return select(both).where(both.c.fault.is_not(None)).order_by(both.c.job_id)


ONE_TERMINAL_RECORD = Invariant(
    name="one_terminal_record_per_job",
    finding="terminal_record_conflicts",
    asset=JOB_LEDGER,
    meaning="Each closed job has exactly one terminal record that matches its row, and an open job has none.",
    violations=lambda reader, bounds: _terminal_record_conflicts(),
    investigation=Investigate(
        InvestigationKind.UNBALANCED,
        reason=TERMINAL_CONFLICT,
        subject="{job_id}:record",
        suspected_effect="effects may follow a state that the journal does not record",
        resolved_when="items, row and journal agree again",
        evidence=("fault", "state", "recorded_state"),
    ),
    repair="`receipts status {job_id} --audience engineering`. Compare the row with its events;"
    " if someone edited the ledger, restore it from its backup.",
)


def _orphan_terminals() -> Query:
    recorded = terminal_events()
    return (
        select(recorded.c.job_id, recorded.c.terminal_events, recorded.c.state_low.label("recorded_state"))
        .select_from(sa.outerjoin(recorded, jobs, jobs.c.job_id == recorded.c.job_id))
        .where(jobs.c.job_id.is_(None))
        .order_by(recorded.c.job_id)
    )


NO_ORPHAN_TERMINALS = Invariant(
    name="every_terminal_record_names_an_accepted_job",
    finding="orphan_terminals",
    meaning="Each terminal record names an accepted job.",
    violations=lambda reader, bounds: _orphan_terminals(),
    repair="Restore the ledger from its backup: the row of job {job_id} was removed.",
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
    all_kept, none_kept = counted.c.kept == jobs.c.items_requested, counted.c.kept == 0
    fault = case(
        (listed != jobs.c.items_requested, "scope_changed"),
        (and_(is_terminal(), classed != jobs.c.items_requested), "item_without_class"),
        (and_(jobs.c.terminal_class == TerminalClass.COMPLETE, ~all_kept), "complete_without_all"),
        (and_(jobs.c.terminal_class == TerminalClass.PARTIAL, or_(none_kept, all_kept)), "partial_without_part"),
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


ITEMS_BALANCE = Invariant(
    name="items_balance_to_accepted",
    finding="unbalanced_items",
    asset=JOB_LEDGER,
    meaning="The items of each job add up to what was accepted and agree with how the job ended.",
    violations=lambda reader, bounds: _unbalanced_items(),
    investigation=Investigate(
        InvestigationKind.UNBALANCED,
        reason=ITEMS_UNBALANCED,
        suspected_effect="items may be missing from the result or counted twice",
        resolved_when="items, row and journal agree again",
        evidence=("fault", "requested", "listed", "classed"),
    ),
    alert=AlertKind.UNBALANCED_TOTALS,
    repair="`receipts status {job_id} --audience engineering`. Compare the items with the accepted event;"
    " if someone edited the ledger, restore it from its backup.",
)


def closing_grace_s(limits: Limits) -> float:
    """Return how long after a limit closing attempts may need before the job counts as stuck."""
    return limits.work.overrun_grace_s + limits.work.closing_attempts_max * limits.work.lease_ttl_s


# A time, or a parameter for it.
Moment = dt.datetime | sa.BindParameter[dt.datetime]


def past_deadline_reason(late: Moment, closing_late: Moment) -> ColumnElement[str]:
    """Return why an open job is past its own deadlines or held; NULL while it is in flight.

    Args:
        late, closing_late: the earliest deadlines that open jobs, and jobs in closing, may have.
    """

    def is_overdue(since: Moment) -> ColumnElement[bool]:
        return or_(jobs.c.processing_deadline <= since, jobs.c.cutoff_at <= since)

    running = jobs.c.state == JobState.RUNNING
    return case(
        (jobs.c.phase.in_(sorted(HELD_PHASES)), jobs.c.phase),
        (and_(jobs.c.state == JobState.ACCEPTED, jobs.c.queue_deadline < late), "queue_overdue"),
        (and_(running, jobs.c.close_cause.is_(None), is_overdue(late)), "processing_overdue"),
        (and_(running, jobs.c.close_cause.is_not(None), is_overdue(closing_late)), "closing_overdue"),
        else_=None,
    )


def moments_after_grace(now: dt.datetime, limits: Limits) -> tuple[dt.datetime, dt.datetime]:
    """Return the deadlines whose grace has passed by now: of open jobs, and of jobs in closing.

    Within the grace reconciliation expires and overruns jobs by itself.
    """
    return (
        now - dt.timedelta(seconds=limits.work.overrun_grace_s),
        now - dt.timedelta(seconds=closing_grace_s(limits)),
    )


_NOW = bindparam("now", type_=UtcMicros())
_LATE, _CLOSING_LATE = bindparam("late", type_=UtcMicros()), bindparam("closing_late", type_=UtcMicros())
_PRINCIPALS: sa.BindParameter[str] = bindparam("principals", expanding=True, type_=sa.String())


def _is_owned() -> ColumnElement[bool]:
    return and_(investigations.c.owner.in_(_PRINCIPALS), investigations.c.deadline_at >= _NOW)


def _has_investigation(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists(
        select(investigations.c.investigation_id).where(investigations.c.job_id == jobs.c.job_id).where(*conditions)
    )


def _filled(query: Query, reader: LedgerReader, bounds: Bounds) -> Query:
    """Return a query with the moments and principals of its parameters."""
    now = reader.now()
    late, closing_late = moments_after_grace(now, bounds.limits)
    given = {"now": now, "late": late, "closing_late": closing_late}
    return query.params(given | {"principals": sorted(bounds.limits.staffing.principals)})


@functools.cache
def _missing_terminal() -> Query:
    fault = past_deadline_reason(_LATE, _CLOSING_LATE)
    is_investigated = _has_investigation(
        investigations.c.state == OPEN, investigations.c.kind == InvestigationKind.MISSING_TERMINAL
    )
    return (
        select(
            jobs.c.job_id,
            fault.label("fault"),
            jobs.c.state,
            jobs.c.phase,
            jobs.c.lease_epoch,
            _has_investigation(investigations.c.state == OPEN, _is_owned()).label("owned"),
            is_investigated.label("investigated"),
        )
        .where(~is_terminal())
        .where(fault.is_not(None))
        .order_by(jobs.c.job_id)
    )


def _is_not_owned_otherwise(row: Row) -> bool:
    return row["investigated"] or not row["owned"]


NO_MISSING_TERMINAL = Invariant(
    name="no_job_is_open_past_its_deadline",
    finding="missing_terminal",
    meaning="Each accepted job that is past its deadline or held has a terminal record.",
    violations=lambda reader, bounds: _filled(_missing_terminal(), reader, bounds),
    investigation=Investigate(
        InvestigationKind.MISSING_TERMINAL,
        reason=TERMINAL_MISSING,
        suspected_effect="the job may have been processed; none of its results was sent",
        resolved_when="the job is closed",
        evidence=("fault", "phase", "lease_epoch"),
        opens=_is_not_owned_otherwise,
    ),
    repair="`receipts reconcile`. If the job stays open, read its attempts and holds:"
    " `receipts status {job_id} --audience engineering`",
    whole_ledger=False,
)


@functools.cache
def _unowned_jobs() -> Query:
    fault = past_deadline_reason(_LATE, _CLOSING_LATE)
    unresolved_items = exists(
        select(items.c.ordinal).where(items.c.job_id == jobs.c.job_id).where(items.c.item_class == ItemClass.UNRESOLVED)
    )
    resolved_or_owned = _has_investigation(
        investigations.c.kind == InvestigationKind.UNRESOLVED_ITEMS, or_(investigations.c.state != OPEN, _is_owned())
    )
    stuck = (
        select(jobs.c.job_id, fault.label("fault"), jobs.c.state, jobs.c.phase)
        .where(~is_terminal())
        .where(fault.is_not(None))
        .where(~_has_investigation(investigations.c.state == OPEN, _is_owned()))
    )
    not_investigated = (
        select(jobs.c.job_id, literal("unresolved_items").label("fault"), jobs.c.state, jobs.c.phase)
        .where(is_terminal())
        .where(unresolved_items)
        .where(~resolved_or_owned)
    )
    both = sa.union_all(stuck, not_investigated).subquery("unowned")
    return select(both).order_by(both.c.job_id)


EVERY_JOB_IS_OWNED = Invariant(
    name="every_accepted_job_is_terminal_or_owned",
    finding="unowned_jobs",
    asset=JOB_LEDGER,
    meaning="Each accepted job is closed, in flight, or has an investigation that is owned and in time;"
    " so has each closed job with unresolved items.",
    violations=lambda reader, bounds: _filled(_unowned_jobs(), reader, bounds),
    repair="`receipts reconcile`. It opens the investigation; assign it with:"
    " `receipts investigations assign INVESTIGATION OWNER`",
)


@functools.cache
def _unowned_investigations() -> Query:
    return (
        select(
            investigations.c.job_id,
            investigations.c.investigation_id,
            investigations.c.kind,
            investigations.c.subject,
            investigations.c.owner,
            investigations.c.deadline_at,
        )
        .where(investigations.c.state == OPEN)
        .where(~_is_owned())
        .order_by(investigations.c.deadline_at, investigations.c.investigation_id)
    )


EVERY_INVESTIGATION_IS_OWNED = Invariant(
    name="every_open_investigation_is_owned",
    finding="unowned_investigations",
    meaning="Each open investigation is inside its deadline and owned by an active principal.",
    violations=lambda reader, bounds: _filled(_unowned_investigations(), reader, bounds),
    repair="`receipts investigations assign {investigation_id} OWNER`",
)
