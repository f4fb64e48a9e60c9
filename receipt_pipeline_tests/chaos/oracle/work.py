"""Invariants of work on a job: epochs, leases, attempts and their bounds."""

from __future__ import annotations

from collections import Counter

from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline_tests.chaos.oracle.evidence import Broken, LedgerRows
from receipt_pipeline_tests.chaos.simulator.evidence import Evidence

OWN_OUTCOMES = frozenset({"committed", "yielded", "failed"})
OPERATORS = frozenset({"operator"})


def attempts_stay_within_their_bounds(found: LedgerRows) -> Broken:
    """Attempts are bounded by budget, item losses, yields and closings, so no job is retried forever."""
    for job in found.jobs:
        job_id = job["job_id"]
        attempts = found.of("attempts", job_id)
        work = [row for row in attempts if row["kind"] == "work"]
        outcomes = Counter(row["outcome"] for row in attempts)
        granted = sum(row["kind"] == "closing" and "granted" in row["data"] for row in found.of("events", job_id))
        spared = outcomes["yielded"] + outcomes["requeued"] + outcomes["quarantined"]
        bound = job["max_attempts"] + found.limits.work.item_losses_max * job["items_requested"] + spared
        closing_bound = found.limits.work.closing_attempts_max * (1 + granted)
        if len(work) > bound or len(attempts) - len(work) > closing_bound:
            yield job_id, f"{len(work)} of {bound}, closing {len(attempts) - len(work)} of {closing_bound}"
        spent = sum(row["spent_budget"] for row in attempts)
        if job["attempts_spent"] != spent or spent > job["max_attempts"]:
            yield job_id, f"{spent} attempts spent, {job['attempts_spent']} counted of {job['max_attempts']}"
        losses = max((item["losses"] for item in found.of("items", job_id)), default=0)
        if losses > found.limits.work.item_losses_max:
            yield job_id, f"an item was lost {losses} times"


def attempt_epochs_rise_to_the_epoch_of_the_job(found: LedgerRows) -> Broken:
    """Every attempt has its own epoch, and none is newer than the job's."""
    for job in found.jobs:
        epochs = [row["lease_epoch"] for row in found.of("attempts", job["job_id"])]
        if epochs != sorted(set(epochs)) or max(epochs, default=0) > job["lease_epoch"]:
            yield job["job_id"], f"attempts under {epochs}, the job is at {job['lease_epoch']}"


def closed_jobs_have_closed_attempts(found: LedgerRows) -> Broken:
    """No attempt of a closed job is open."""
    closed = {job["job_id"] for job in found.jobs if job["state"] in TERMINAL_STATES}
    for row in found.rows["attempts"]:
        if row["closed_at"] is None and row["job_id"] in closed:
            yield row["job_id"], f"attempt {row['lease_epoch']} is open"


def a_rejected_write_was_stale(found: LedgerRows) -> Broken:
    """Only a worker with an old epoch, or of a closed job, is rejected."""
    closed = {job["job_id"] for job in found.jobs if job["state"] in TERMINAL_STATES}
    for row in found.rows["refused_writes"]:
        if row["lease_epoch"] >= row["current_epoch"] and row["job_id"] not in closed:
            yield row["job_id"], f"{row['write_kind']} under epoch {row['lease_epoch']} was rejected"


# When nothing is due any more.


def no_attempt_and_no_lease_remains_open(found: LedgerRows) -> Broken:
    """Every attempt is closed and no job has a lease owner."""
    for row in found.rows["attempts"]:
        if row["closed_at"] is None:
            yield row["job_id"], f"attempt {row['lease_epoch']} was never closed"
    for job in found.jobs:
        if job["lease_owner"] is not None:
            yield job["job_id"], f"owned by {job['lease_owner']}"


# From every single write of a simulation.


def epochs_only_rise(found: Evidence) -> Broken:
    """A lease epoch never falls, and each owner gets a new epoch."""
    for change in found.changes:
        before, after = change.before, change.after
        if change.relation != "jobs" or before is None:
            continue
        if after["lease_epoch"] < before["lease_epoch"]:
            yield after["job_id"], f"epoch {before['lease_epoch']} -> {after['lease_epoch']}"
        has_new_owner = after["lease_owner"] not in (None, before["lease_owner"])
        if has_new_owner and after["lease_epoch"] == before["lease_epoch"]:
            yield after["job_id"], f"{after['lease_owner']} owns it under an old epoch"


def only_the_holder_writes(found: Evidence) -> Broken:
    """Only the holder begins and finishes items, intends uploads and commits, under the job's epoch."""
    for change in found.changes:
        before, after = change.before or {}, change.after
        epoch = None
        if change.relation == "items" and change.before is not None:
            for name, of in (("written_epoch", "outcome_digest"), ("begun_epoch", "begun_epoch")):
                if after[of] is not None and after[of] != before[of]:
                    epoch = after[name]
        elif change.before is None and (change.relation == "attempts" or after.get("kind") == "result_object"):
            epoch = after["lease_epoch"]
        if epoch is not None and (epoch, change.actor) != (change.epoch, change.owner):
            where = f"{change.relation} under epoch {epoch}"
            yield after["job_id"], f"{change.actor} wrote {where}; {change.owner} holds {change.epoch}"
        commits = change.relation == "jobs" and after["state"] == "succeeded" != before.get("state")
        if commits and change.actor not in OPERATORS and before["lease_owner"] != change.actor:
            yield after["job_id"], f"{change.actor} committed a result of {before['lease_owner']}"


def only_the_worker_ends_its_own_attempt(found: Evidence) -> Broken:
    """Only the worker of an attempt records that it committed, yielded or failed."""
    for change in found.changes:
        before, after = change.before or {}, change.after
        if change.relation != "attempts" or after["outcome"] not in OWN_OUTCOMES:
            continue
        if before.get("outcome") != after["outcome"] and change.actor != after["owner"]:
            yield after["job_id"], f"{change.actor} ended the attempt of {after['owner']}: {after['outcome']}"


def only_the_holder_renews(found: Evidence) -> Broken:
    """Only the holder extends a lease."""
    for change in found.changes:
        before, after = change.before, change.after
        if change.relation != "jobs" or before is None or before["lease_owner"] is None:
            continue
        owner = after["lease_owner"]
        extended = before["lease_owner"] == owner and before["lease_expires_at"] != after["lease_expires_at"]
        if extended and change.actor != owner:
            yield after["job_id"], f"{change.actor} extended the lease of {owner}"


def a_valid_lease_is_not_taken(found: Evidence) -> Broken:
    """A worker counts as lost only after its lease expired by the ledger's clock."""
    ended = {(row["job_id"], row["lease_epoch"]): row["outcome"] for row in found.rows["attempts"]}
    for change in found.changes:
        before, after = change.before, change.after
        if change.relation != "jobs" or before is None or before["lease_owner"] is None:
            continue
        lost = ended.get((before["job_id"], before["lease_epoch"])) == "lost"
        if after["lease_owner"] is None and lost and before["lease_expires_at"] > change.now_us:
            yield after["job_id"], f"{change.actor} took a lease that {before['lease_owner']} still held"


def one_open_attempt_per_job(found: Evidence) -> Broken:
    """No attempt opens while another attempt of its job is open."""
    open_epochs: dict[str, set[int]] = {}
    for change in found.changes:
        if change.relation != "attempts":
            continue
        epochs = open_epochs.setdefault(change.after["job_id"], set())
        if change.before is None:
            if epochs:
                yield change.after["job_id"], f"attempt {change.after['lease_epoch']} opened next to {epochs}"
            epochs.add(change.after["lease_epoch"])
        elif change.after["closed_at"] is not None:
            epochs.discard(change.after["lease_epoch"])


def a_finished_item_is_not_read_again(found: Evidence) -> Broken:
    """A scan is read again only after its item was lost or held."""
    allowed: Counter[str] = Counter()
    jobs_of: dict[str, str] = {}
    for item in found.rows["items"]:
        digest = item["sha256"].removeprefix("sha256:")
        allowed[digest] += 1 + item["losses"] + len(found.of("quarantine", item["job_id"]))
        jobs_of[digest] = item["job_id"]
    for data, times in found.chain.asked.items():
        digest = next((known for known, scan in found.scans.items() if scan == data), "")
        if times > allowed[digest]:
            yield jobs_of.get(digest), f"{data.decode()} was read {times} times, {allowed[digest]} allowed"


WORK_INVARIANTS = (
    attempts_stay_within_their_bounds,
    attempt_epochs_rise_to_the_epoch_of_the_job,
    closed_jobs_have_closed_attempts,
    a_rejected_write_was_stale,
)
WORK_INVARIANTS_AT_REST = (no_attempt_and_no_lease_remains_open,)
WORK_INVARIANTS_OF_WRITES = (
    epochs_only_rise,
    only_the_holder_writes,
    only_the_worker_ends_its_own_attempt,
    only_the_holder_renews,
    a_valid_lease_is_not_taken,
    one_open_attempt_per_job,
    a_finished_item_is_not_read_again,
)
