"""What no work on a job may break: epochs, leases, attempts, bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline_tests.chaos.simulator.evidence import Evidence
from receipt_pipeline_tests.chaos.simulator.script import LIMITS

Broken = Iterator[tuple[str | None, str]]
OWN_OUTCOMES = frozenset({"committed", "yielded", "failed"})
PEOPLE = frozenset({"operator"})


def epochs_only_rise(found: Evidence) -> Broken:
    """A lease epoch never falls, and no owner follows another under one epoch."""
    for change in found.changes:
        before, after = change.before, change.after
        if change.relation != "jobs" or before is None:
            continue
        if after["lease_epoch"] < before["lease_epoch"]:
            yield after["job_id"], f"epoch {before['lease_epoch']} -> {after['lease_epoch']}"
        handed_on = after["lease_owner"] not in (None, before["lease_owner"])
        if handed_on and after["lease_epoch"] == before["lease_epoch"]:
            yield after["job_id"], f"{after['lease_owner']} owns it under an old epoch"


def only_the_holder_writes(found: Evidence) -> Broken:
    """The holder alone begins and finishes items, intends uploads and commits, under the job's epoch."""
    for change in found.changes:
        before, after = change.before or {}, change.after
        epoch = None
        if change.relation == "items" and change.before is not None:
            for name, of in (("written_epoch", "outcome_digest"), ("begun_epoch", "begun_epoch")):
                if after[of] is not None and after[of] != before[of]:
                    epoch = after[name]
        elif change.before is None and (
            change.relation == "attempts" or after.get("kind") == "result_object"
        ):
            epoch = after["lease_epoch"]
        if epoch is not None and (epoch, change.actor) != (change.epoch, change.owner):
            where = f"{change.relation} under epoch {epoch}"
            yield after["job_id"], f"{change.actor} wrote {where}; {change.owner} holds {change.epoch}"
        commits = change.relation == "jobs" and after["state"] == "succeeded" != before.get("state")
        if commits and change.actor not in PEOPLE and before["lease_owner"] != change.actor:
            yield after["job_id"], f"{change.actor} committed a result of {before['lease_owner']}"


def only_the_worker_itself_ends_its_attempt(found: Evidence) -> Broken:
    """That an attempt committed, yielded or failed is written by its own worker alone."""
    for change in found.changes:
        before, after = change.before or {}, change.after
        if change.relation != "attempts" or after["outcome"] not in OWN_OUTCOMES:
            continue
        if before.get("outcome") != after["outcome"] and change.actor != after["owner"]:
            yield after["job_id"], f"{change.actor} ended the attempt of {after['owner']}: {after['outcome']}"


def only_the_holder_renews(found: Evidence) -> Broken:
    """A lease is extended by its own holder alone."""
    for change in found.changes:
        before, after = change.before, change.after
        if change.relation != "jobs" or before is None or before["lease_owner"] is None:
            continue
        owner = after["lease_owner"]
        extended = before["lease_owner"] == owner and before["lease_expires_at"] != after["lease_expires_at"]
        if extended and change.actor != owner:
            yield after["job_id"], f"{change.actor} extended the lease of {owner}"


def a_live_lease_is_not_taken(found: Evidence) -> Broken:
    """A worker counts as lost only once its lease has run out by the ledger's clock."""
    ended = {(row["job_id"], row["lease_epoch"]): row["outcome"] for row in found.rows["attempts"]}
    for change in found.changes:
        before, after = change.before, change.after
        if change.relation != "jobs" or before is None or before["lease_owner"] is None:
            continue
        lost = ended.get((before["job_id"], before["lease_epoch"])) == "lost"
        if after["lease_owner"] is None and lost and before["lease_expires_at"] > change.now_us:
            yield after["job_id"], f"{change.actor} took a lease that {before['lease_owner']} still held"


def a_claim_follows_an_ending(found: Evidence) -> Broken:
    """No attempt opens while another of its job is open."""
    open_epochs: dict[str, set[int]] = {}
    for change in found.changes:
        if change.relation != "attempts":
            continue
        epochs = open_epochs.setdefault(change.after["job_id"], set())
        if change.before is None:
            if epochs:
                yield change.after["job_id"], f"attempt {change.after['lease_epoch']} opened beside {epochs}"
            epochs.add(change.after["lease_epoch"])
        elif change.after["closed_at"] is not None:
            epochs.discard(change.after["lease_epoch"])


def attempts_stay_within_their_bounds(found: Evidence) -> Broken:
    """Attempts are bounded by budget, item losses, yields and closings: no job is retried for ever (R112)."""
    for job in found.jobs:
        job_id = job["job_id"]
        tried = found.of("attempts", job_id)
        work = [row for row in tried if row["kind"] == "work"]
        outcomes = Counter(row["outcome"] for row in tried)
        journal = found.of("events", job_id)
        granted = sum(row["kind"] == "closing" and "granted" in row["data"] for row in journal)
        spared = outcomes["yielded"] + outcomes["quarantined"]
        bound = job["max_attempts"] + LIMITS.work.item_losses_max * job["items_requested"] + spared
        closing_bound = LIMITS.work.closing_attempts_max * (1 + granted)
        if len(work) > bound or len(tried) - len(work) > closing_bound:
            yield job_id, f"{len(work)} of {bound}, closing {len(tried) - len(work)} of {closing_bound}"
        spent = sum(row["spent_budget"] for row in tried)
        if job["attempts_spent"] != spent or spent > job["max_attempts"]:
            yield job_id, f"{spent} attempts spent, {job['attempts_spent']} counted of {job['max_attempts']}"
        losses = max((item["losses"] for item in found.of("items", job_id)), default=0)
        if losses > LIMITS.work.item_losses_max:
            yield job_id, f"an item was lost {losses} times"


def no_attempt_and_no_lease_is_left_open(found: Evidence) -> Broken:
    """When everything has come to rest, every attempt is closed and nobody owns a job."""
    for row in found.rows["attempts"]:
        if row["closed_at"] is None:
            yield row["job_id"], f"attempt {row['lease_epoch']} is open"
    for job in found.jobs:
        if job["lease_owner"] is not None:
            yield job["job_id"], f"owned by {job['lease_owner']}"


def a_refused_write_was_stale(found: Evidence) -> Broken:
    """Only a worker whose epoch has passed is refused."""
    closed = {job["job_id"] for job in found.jobs if job["state"] in TERMINAL_STATES}
    for row in found.rows["refused_writes"]:
        if row["lease_epoch"] >= row["current_epoch"] and row["job_id"] not in closed:
            yield row["job_id"], f"{row['write_kind']} under epoch {row['lease_epoch']} was refused"


def the_model_is_not_asked_again_in_vain(found: Evidence) -> Broken:
    """A scan is read again only after its item was lost or held; what is finished is not computed again."""
    allowed: Counter[str] = Counter()
    jobs_of: dict[str, str] = {}
    for item in found.rows["items"]:
        digest = item["sha256"].removeprefix("sha256:")
        allowed[digest] += 1 + item["losses"] + len(found.of("quarantine", item["job_id"]))
        jobs_of[digest] = item["job_id"]
    for data, times in found.chain.asked.items():
        digest = next((known for known, scan in found.scans.items() if scan == data), "")
        if times > allowed[digest]:
            yield jobs_of.get(digest), f"asked {times} times about {data.decode()}, {allowed[digest]} allowed"


WORK_INVARIANTS = (
    epochs_only_rise,
    only_the_holder_writes,
    only_the_worker_itself_ends_its_attempt,
    only_the_holder_renews,
    a_live_lease_is_not_taken,
    a_claim_follows_an_ending,
    attempts_stay_within_their_bounds,
    no_attempt_and_no_lease_is_left_open,
    a_refused_write_was_stale,
    the_model_is_not_asked_again_in_vain,
)
