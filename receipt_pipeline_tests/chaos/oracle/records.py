"""What no run of the house may ever break: one function each, over the evidence that a simulation leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from receipt_pipeline.core.lifecycle import HELD_PHASES, TERMINAL_STATES
from receipt_pipeline_tests.chaos.oracle.effects import EFFECT_INVARIANTS
from receipt_pipeline_tests.chaos.oracle.outputs import OUTPUT_INVARIANTS
from receipt_pipeline_tests.chaos.oracle.work import WORK_INVARIANTS
from receipt_pipeline_tests.chaos.simulator.evidence import Evidence, Row
from receipt_pipeline_tests.chaos.simulator.script import LIMITS

# Yields a job id, or None, and what is wrong.
Broken = Iterator[tuple[str | None, str]]
Invariant = Callable[[Evidence], Broken]


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant."""

    invariant: str
    job_id: str | None
    detail: str


def every_job_ends_or_is_owned(found: Evidence) -> Broken:
    """A job is closed, or held with an open question that an active principal owns and that is in time."""
    for job in found.jobs:
        if job["state"] in TERMINAL_STATES:
            continue
        owned = any(_is_owned(found, row) for row in found.of("investigations", job["job_id"]))
        if job["phase"] not in HELD_PHASES or not owned:
            yield job["job_id"], f"{job['state']} {job['phase']}, owned: {owned}"


def every_open_question_can_be_answered(found: Evidence) -> Broken:
    """An open question has an active owner, a deadline ahead, a suspected effect and an allowed repair."""
    for row in found.rows["investigations"]:
        if row["state"] == "open" and not _is_owned(found, row):
            yield row["job_id"], f"{row['kind']} {row['subject']}"


def _is_owned(found: Evidence, row: Row) -> bool:
    told = all(row[name] for name in ("suspected_effect", "allowed_repair", "reason_code"))
    in_time = row["deadline_at"] >= found.now_us
    return bool(row["state"] == "open" and told and in_time and row["owner"] in LIMITS.staffing.principals)


def one_terminal_record_per_job(found: Evidence) -> Broken:
    """A closed job has one terminal event that agrees with its row; an open one has none."""
    for job in found.jobs:
        told = [row for row in found.of("events", job["job_id"]) if row["kind"] == "terminal"]
        if len(told) != (job["state"] in TERMINAL_STATES):
            yield job["job_id"], f"{len(told)} terminal events of a job that is {job['state']}"
        elif told:
            said = {name: told[0]["data"].get(name) for name in ("state", "terminal_class", "result_digest")}
            if said != {name: job[name] for name in said} or told[0]["at"] != job["terminal_at"]:
                yield job["job_id"], f"the journal says {said}"


def nothing_leaves_a_terminal_state(found: Evidence) -> Broken:
    """State, class, reason, result, time and epoch of a closed job are never written again."""
    for change in found.changes:
        before = change.before
        if change.relation != "jobs" or before is None or before["state"] not in TERMINAL_STATES:
            continue
        # A closed job is settled later, and once.
        settling = before["settled_at"] is None
        kept = before | {"settled_at": change.after["settled_at"]} if settling else before
        if kept != change.after:
            yield before["job_id"], f"{change.actor} wrote {_difference(kept, change.after)}"


def the_items_sum_to_the_accepted_scope(found: Evidence) -> Broken:
    """The items are those that were accepted; those of a closed job are classed as its record says."""
    for job in found.jobs:
        listed, journal = found.of("items", job["job_id"]), found.of("events", job["job_id"])
        accepted = [row["data"]["items"] for row in journal if row["kind"] == "accepted"]
        if accepted != [job["items_requested"]] or len(listed) != job["items_requested"]:
            yield job["job_id"], f"accepted {accepted}, listed {len(listed)}"
        counted: dict[str, int] = {}
        for item in listed:
            counted[item["item_class"]] = counted.get(item["item_class"], 0) + 1
        for row in journal:
            if row["kind"] == "terminal" and row["data"]["items"] != counted:
                yield job["job_id"], f"closed on {row['data']['items']}, listed {counted}"


def an_item_is_classed_once(found: Evidence) -> Broken:
    """Class, decision and outcome of an item that has a class are never written again."""
    for change in found.changes:
        before = change.before
        if change.relation == "items" and before is not None and before["item_class"] is not None:
            yield before["job_id"], f"{change.actor} wrote {_difference(before, change.after)}"


def one_job_per_key(found: Evidence) -> Broken:
    """However often a request comes, its key names one job, and callers are told no other."""
    keys = [(job["tenant"], job["idempotency_key"]) for job in found.jobs]
    known = {(job["tenant"], job["idempotency_key"]): job["job_id"] for job in found.jobs}
    for key in sorted({key for key in keys if keys.count(key) > 1}):
        yield known[key], f"several jobs under {key}"
    for key, told in sorted(found.answers.items()):
        if told != {known.get(key)}:
            yield known.get(key), f"callers of {key} were told {sorted(told)}"


def expiry_and_claim_exclude_each_other(found: Evidence) -> Broken:
    """A job expires only unclaimed and past its queue deadline; past it, no job is claimed first."""
    for job in found.jobs:
        expired = job["state"] == "expired"
        if expired and (found.of("attempts", job["job_id"]) or job["claimed_at"] is not None):
            yield job["job_id"], "expired although it was claimed"
        if expired and job["terminal_at"] <= job["queue_deadline"]:
            yield job["job_id"], "expired inside its queue deadline"
        if job["claimed_at"] is not None and job["claimed_at"] > job["queue_deadline"]:
            yield job["job_id"], "claimed past its queue deadline"


def an_answered_cancellation_stands(found: Evidence) -> Broken:
    """What a caller was told is canceled is canceled, and nothing else is."""
    for job in found.jobs:
        asked = job["job_id"] in found.canceled or job["superseded_by"] is not None
        if asked != (job["state"] == "canceled"):
            yield job["job_id"], f"{job['state']}, cancellation answered: {asked}"


def the_journal_runs_forward(found: Evidence) -> Broken:
    """Whatever the clock does, no event is dated before an earlier one; every job points at its newest."""
    newest = 0
    for row in found.rows["events"]:
        if row["at"] < newest:
            yield row["job_id"], f"event {row['seq']} is dated before an earlier one"
        newest = max(newest, row["at"])
    for job in found.jobs:
        last = max((row["seq"] for row in found.of("events", job["job_id"])), default=0)
        if job["latest_seq"] != last:
            yield job["job_id"], f"points at event {job['latest_seq']} of {last}"


def nothing_is_reserved_for_ever(found: Evidence) -> Broken:
    """Every wave ends, and a wave that has ended reserves no job."""
    closed = {row["wave_id"] for row in found.rows["waves"] if row["state"] == "closed"}
    for job in found.jobs:
        if job["wave_id"] is not None:
            yield job["job_id"], f"reserved for {job['wave_id']}"
    if len(closed) != len(found.rows["waves"]):
        yield None, "a wave is still open"


def reconciling_again_changes_nothing(found: Evidence) -> Broken:
    """One more reconciliation of what is reconciled leaves every row of every table as it is."""
    for table, rows in found.before.items():
        if rows != found.after[table]:
            yield None, f"rows of {table} changed"


def services_raise_only_expected_errors(found: Evidence) -> Broken:
    """Whatever goes wrong around them, services raise errors with a reason; no assertion breaks."""
    yield from ((None, defect) for defect in found.defects if defect.startswith("services_raise"))


def no_outside_call_in_a_transaction(found: Evidence) -> Broken:
    """Store and channel are asked between transactions, never inside one."""
    yield from ((None, defect) for defect in found.defects if defect.startswith("no_outside_call"))


def _difference(before: Row, after: Row) -> str:
    changed = [name for name in before if before[name] != after[name]]
    return ", ".join(f"{name}: {before[name]} -> {after[name]}" for name in changed)


INVARIANTS: tuple[Invariant, ...] = (
    every_job_ends_or_is_owned,
    every_open_question_can_be_answered,
    one_terminal_record_per_job,
    nothing_leaves_a_terminal_state,
    the_items_sum_to_the_accepted_scope,
    an_item_is_classed_once,
    one_job_per_key,
    expiry_and_claim_exclude_each_other,
    an_answered_cancellation_stands,
    the_journal_runs_forward,
    nothing_is_reserved_for_ever,
    *WORK_INVARIANTS,
    *OUTPUT_INVARIANTS,
    *EFFECT_INVARIANTS,
    reconciling_again_changes_nothing,
    services_raise_only_expected_errors,
    no_outside_call_in_a_transaction,
)


def find_violations(found: Evidence) -> Iterator[Violation]:
    """Hold the evidence against every invariant."""
    for invariant in INVARIANTS:
        for job_id, detail in invariant(found):
            yield Violation(invariant.__name__, job_id, detail)
