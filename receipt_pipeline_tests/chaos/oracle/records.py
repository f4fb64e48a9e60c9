"""Invariants of terminal records, items, keys and the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from receipt_pipeline.core.lifecycle import HELD_PHASES, TERMINAL_STATES
from receipt_pipeline_tests.chaos.oracle.evidence import Broken, LedgerRows, Row, difference
from receipt_pipeline_tests.chaos.simulator.evidence import Evidence

# Only the holder of the lease may write these; each has the epoch under which it was written.
HOLDER_EVENTS = frozenset({"item_finished", "result_intended"})
ONCE_PER_JOB = ("accepted", "terminal", "message_created")


def one_terminal_record_per_job(found: LedgerRows) -> Broken:
    """A closed job has one terminal event that matches its row; an open job has none."""
    for job in found.jobs:
        terminal = [row for row in found.of("events", job["job_id"]) if row["kind"] == "terminal"]
        if len(terminal) != (job["state"] in TERMINAL_STATES):
            yield job["job_id"], f"{len(terminal)} terminal events of a job that is {job['state']}"
        elif terminal:
            event = terminal[0]["data"]
            names = ("state", "terminal_class", "result_digest")
            if {name: event.get(name) for name in names} != {name: job[name] for name in names}:
                yield job["job_id"], f"the journal has {event}"
            if not job["terminal_at"] <= terminal[0]["at"] <= job["terminal_at"] + found.clock_step:
                yield job["job_id"], f"closed at {job['terminal_at']}, in the journal at {terminal[0]['at']}"


def items_sum_to_the_accepted_scope(found: LedgerRows) -> Broken:
    """A job has the items that were accepted; the classes of a closed job match its terminal record."""
    for job in found.jobs:
        listed, journal = found.of("items", job["job_id"]), found.of("events", job["job_id"])
        accepted = [row["data"]["items"] for row in journal if row["kind"] == "accepted"]
        if accepted != [job["items_requested"]] or len(listed) != job["items_requested"]:
            yield job["job_id"], f"accepted {accepted}, listed {len(listed)}"
        counted = Counter(item["item_class"] for item in listed)
        if None in counted and job["state"] in TERMINAL_STATES:
            yield job["job_id"], f"closed with {counted[None]} items without a class"
        for row in journal:
            if row["kind"] == "terminal" and row["data"]["items"] != counted:
                yield job["job_id"], f"closed with {row['data']['items']}, listed {dict(counted)}"


def one_job_per_key(found: LedgerRows) -> Broken:
    """An idempotency key names one job of its tenant, however often the request is repeated."""
    keys = Counter((job["tenant"], job["idempotency_key"]) for job in found.jobs)
    for key in sorted(key for key, count in keys.items() if count > 1):
        yield None, f"several jobs under {key}"


def expiry_and_claim_exclude_each_other(found: LedgerRows) -> Broken:
    """A job expires only unclaimed and after its queue deadline; no job is claimed after its deadline."""
    for job in found.jobs:
        expired = job["state"] == "expired"
        if expired and (found.of("attempts", job["job_id"]) or job["claimed_at"] is not None):
            yield job["job_id"], "expired although it was claimed"
        if expired and job["terminal_at"] <= job["queue_deadline"]:
            yield job["job_id"], "expired before its queue deadline"
        if job["claimed_at"] is not None and job["claimed_at"] > job["queue_deadline"]:
            yield job["job_id"], "claimed after its queue deadline"


def journal_times_never_decrease(found: LedgerRows) -> Broken:
    """Events never go back in time where one transaction writes at a time, whatever the clock does."""
    newest = None
    for row in found.rows["events"]:
        if newest is not None and row["at"] < newest:
            yield row["job_id"], f"event {row['seq']} is dated before an earlier one"
        newest = row["at"] if newest is None else max(newest, row["at"])


def jobs_point_at_their_newest_event(found: LedgerRows) -> Broken:
    """The newest event that a job's row names is the last of its events."""
    for job in found.jobs:
        last = max((row["seq"] for row in found.of("events", job["job_id"])), default=0)
        if job["latest_seq"] != last:
            yield job["job_id"], f"points at event {job['latest_seq']} of {last}"


def journal_has_one_holder_at_a_time(found: LedgerRows) -> Broken:
    """Claims have rising epochs; only the open claim finishes items, intends results or closes attempts."""
    for job in found.jobs:
        for detail in _holder_faults(found.of("events", job["job_id"])):
            yield job["job_id"], detail


def _holder_faults(journal: Sequence[Row]) -> list[str]:
    faults: list[str] = []
    newest, held = 0, None
    for event in journal:
        epoch, where = event["lease_epoch"], f"(seq {event['seq']})"
        if event["kind"] == "claimed":
            if epoch <= newest:
                faults.append(f"claim {epoch} after {newest} {where}")
            if held is not None:
                faults.append(f"claim {epoch} while {held} is open {where}")
            newest = held = epoch
        elif event["kind"] in HOLDER_EVENTS and epoch != held:
            faults.append(f"{event['kind']} under {epoch}, held by {held} {where}")
        elif event["kind"] == "attempt_closed":
            if epoch != held:
                faults.append(f"attempt {epoch} closed, held by {held} {where}")
            held = None
        elif event["kind"] == "terminal" and epoch < newest:
            faults.append(f"terminal under {epoch} after claim {newest} {where}")
    return faults


def journal_records_each_event_once(found: LedgerRows) -> Broken:
    """A job is accepted, closed and announced once; an item finishes once, and never after the end."""
    for job in found.jobs:
        journal = found.of("events", job["job_id"])
        kinds = Counter(event["kind"] for event in journal)
        for kind in ONCE_PER_JOB:
            if kinds[kind] > 1:
                yield job["job_id"], f"{kinds[kind]} events of {kind}"
        finished = Counter(event["data"]["ordinal"] for event in journal if event["kind"] == "item_finished")
        for ordinal, count in finished.items():
            if count > 1:
                yield job["job_id"], f"item {ordinal} finished {count} times"
        end = next((index for index, event in enumerate(journal) if event["kind"] == "terminal"), len(journal))
        for event in journal[end:]:
            if event["kind"] in HOLDER_EVENTS | {"claimed"}:
                yield job["job_id"], f"{event['kind']} after the terminal record"


def held_jobs_have_an_open_investigation(found: LedgerRows) -> Broken:
    """A job on hold has an open investigation."""
    for job in found.jobs:
        investigations = found.of("investigations", job["job_id"])
        if job["phase"] in HELD_PHASES and not any(row["state"] == "open" for row in investigations):
            yield job["job_id"], f"{job['phase']} without an open investigation"


def unresolved_items_have_an_investigation(found: LedgerRows) -> Broken:
    """Every unresolved item of a closed job is named by an investigation, open or resolved."""
    for job in found.jobs:
        if job["state"] not in TERMINAL_STATES:
            continue
        named = {
            item_id
            for row in found.of("investigations", job["job_id"])
            if row["kind"] == "unresolved_items"
            for item_id in row["evidence"].get("item_ids", ())
        }
        listed = found.of("items", job["job_id"])
        unresolved = {row["item_id"] for row in listed if row["item_class"] == "unresolved"}
        if not unresolved <= named:
            yield job["job_id"], f"no investigation names {sorted(unresolved - named)}"


# When nothing is due any more.


def every_job_ends_or_is_owned(found: LedgerRows) -> Broken:
    """A job is closed, or on hold with an open investigation that has an active owner and is in time."""
    for job in found.jobs:
        if job["state"] in TERMINAL_STATES:
            continue
        owned = any(is_owned(found, row) for row in found.of("investigations", job["job_id"]))
        if job["phase"] not in HELD_PHASES or not owned:
            yield job["job_id"], f"is still {job['state']}/{job['phase']}, owned: {owned}"


def every_open_investigation_is_actionable(found: LedgerRows) -> Broken:
    """An open investigation has an active owner, a deadline ahead, a suspected effect and a repair."""
    for row in found.rows["investigations"]:
        if row["state"] == "open" and not is_owned(found, row):
            yield row["job_id"], f"{row['kind']} {row['subject']}"


def is_owned(found: LedgerRows, row: Row) -> bool:
    """Return whether an open investigation has an active owner, is in time and names its repair."""
    named = all(row[name] for name in ("suspected_effect", "allowed_repair", "reason_code"))
    in_time = row["deadline_at"] >= found.now
    return bool(row["state"] == "open" and named and in_time and row["owner"] in found.limits.staffing.principals)


def nothing_remains_reserved(found: LedgerRows) -> Broken:
    """Every wave is closed, and no job is reserved for a wave."""
    for job in found.jobs:
        if job["wave_id"] is not None:
            yield job["job_id"], f"reserved for {job['wave_id']}"
    for wave in found.rows["waves"]:
        if wave["state"] != "closed":
            yield None, f"wave {wave['wave_id']} is still open"


# From every single write of a simulation.


def nothing_leaves_a_terminal_state(found: Evidence) -> Broken:
    """State, class, reason, result, time and epoch of a closed job are never written again."""
    for change in found.changes:
        before = change.before
        if change.relation != "jobs" or before is None or before["state"] not in TERMINAL_STATES:
            continue
        # `settled_at` is written later, and once.
        finishing = before["settled_at"] is None
        kept = before | {"settled_at": change.after["settled_at"]} if finishing else before
        if kept != change.after:
            yield before["job_id"], f"{change.actor} wrote {difference(kept, change.after)}"


def an_item_is_classified_once(found: Evidence) -> Broken:
    """Class, decision and outcome of an item that has a class are never written again."""
    for change in found.changes:
        before = change.before
        if change.relation == "items" and before is not None and before["item_class"] is not None:
            yield before["job_id"], f"{change.actor} wrote {difference(before, change.after)}"


def callers_get_the_job_of_their_key(found: Evidence) -> Broken:
    """Every accepted request returned the one job of its key."""
    known = {(job["tenant"], job["idempotency_key"]): job["job_id"] for job in found.jobs}
    for key, returned in sorted(found.answers.items()):
        if returned != {known.get(key)}:
            yield known.get(key), f"requests under {key} returned {sorted(returned)}"


def canceled_jobs_are_those_that_callers_canceled(found: Evidence) -> Broken:
    """A job is canceled exactly when a caller canceled or replaced it."""
    for job in found.jobs:
        requested = job["job_id"] in found.canceled or job["superseded_by"] is not None
        if requested != (job["state"] == "canceled"):
            yield job["job_id"], f"{job['state']}, cancellation confirmed: {requested}"


def a_second_reconciliation_changes_nothing(found: Evidence) -> Broken:
    """Reconciling a reconciled ledger leaves every row of every table unchanged."""
    for table, rows in found.before.items():
        if rows != found.after[table]:
            yield None, f"rows of {table} changed"


def services_raise_only_expected_errors(found: Evidence) -> Broken:
    """Under any fault, services raise errors with a reason code; no assertion fails."""
    yield from ((None, defect) for defect in found.defects if defect.startswith("services_raise"))


def no_external_call_in_a_transaction(found: Evidence) -> Broken:
    """Store and channel are called between transactions, never inside one."""
    yield from ((None, defect) for defect in found.defects if defect.startswith("no_external_call"))


RECORD_INVARIANTS = (
    one_terminal_record_per_job,
    items_sum_to_the_accepted_scope,
    one_job_per_key,
    expiry_and_claim_exclude_each_other,
    journal_times_never_decrease,
    jobs_point_at_their_newest_event,
    journal_has_one_holder_at_a_time,
    journal_records_each_event_once,
    held_jobs_have_an_open_investigation,
    unresolved_items_have_an_investigation,
)
RECORD_INVARIANTS_AT_REST = (
    every_job_ends_or_is_owned,
    every_open_investigation_is_actionable,
    nothing_remains_reserved,
)
RECORD_INVARIANTS_OF_WRITES = (
    nothing_leaves_a_terminal_state,
    an_item_is_classified_once,
    callers_get_the_job_of_their_key,
    canceled_jobs_are_those_that_callers_canceled,
    a_second_reconciliation_changes_nothing,
    services_raise_only_expected_errors,
    no_external_call_in_a_transaction,
)
