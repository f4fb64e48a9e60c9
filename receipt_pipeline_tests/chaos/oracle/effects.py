"""Invariants of effects: intents with their cause, messages and tasks once, gaps owned."""

from __future__ import annotations

from receipt_pipeline.core.effects import EFFECT_TRANSITIONS
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline_tests.chaos.oracle.evidence import Broken, LedgerRows
from receipt_pipeline_tests.chaos.simulator.evidence import Evidence

DONE = ("committed", "abandoned")
FINAL_MESSAGES = ("sent", "abandoned")


def a_job_has_one_publication(found: LedgerRows) -> Broken:
    """A success has one committed upload, with the key and digest of its record; no other job has any."""
    for job in found.jobs:
        published = [
            (row["idempotency_key"], row["expected_digest"])
            for row in found.of("effects", job["job_id"])
            if row["kind"] == "result_object" and row["state"] == "committed"
        ]
        wanted = [(job["result_key"], job["result_digest"])] if job["state"] == "succeeded" else []
        if published != wanted:
            yield job["job_id"], f"{job['state']} with committed uploads {published}"


def terminal_record_has_intents(found: LedgerRows) -> Broken:
    """A terminal record has its message and the intents of its effects, exactly those."""
    for job in found.jobs:
        closed = job["state"] in TERMINAL_STATES
        rows = found.of("effects", job["job_id"])
        have = sorted(row["kind"] for row in rows if row["kind"] != "result_object")
        want = []
        if closed and job["notification"] != "none":
            want.append("notification")
        if job["state"] == "succeeded" and job["review_tasks"] != "none":
            want.append("review_tasks")
        messages = len(found.of("outbox", job["job_id"]))
        if have != want or messages != want.count("notification"):
            yield job["job_id"], f"{job['state']} with effects {have} and {messages} messages, wanted {want}"


def settled_jobs_have_their_required_effects(found: LedgerRows) -> Broken:
    """`settled_at` is set exactly when a job is closed and its required effects are done."""
    for job in found.jobs:
        missing = [
            row["kind"]
            for row in found.of("effects", job["job_id"])
            if row["required"] and row["kind"] != "result_object" and row["state"] not in DONE
        ]
        settled = job["state"] in TERMINAL_STATES and not missing
        if settled != (job["settled_at"] is not None):
            yield job["job_id"], f"{job['state']}, missing {missing}, settled at {job['settled_at']}"


# When nothing is due any more.


def one_action_per_decision(found: LedgerRows) -> Broken:
    """The consumer acts once per success: one task per decision, and none for anything else."""
    for job in found.jobs:
        job_id = job["job_id"]
        acted = [row for row in found.of("consumed", job_id) if row["outcome"] == "acted"]
        tasks = sorted(row["decision_id"] for row in found.of("review_tasks", job_id))
        made = sum(row["tasks_made"] for row in found.of("consumed", job_id))
        if len(acted) > 1 or made != len(tasks):
            yield job_id, f"acted {len(acted)} times, made {made} of {len(tasks)} tasks"
        decisions = sorted(row["decision_id"] for row in found.of("items", job_id) if row["item_class"] == "classified")
        states = [row["state"] for row in found.of("effects", job_id) if row["kind"] == "review_tasks"]
        if tasks != (decisions if states == ["committed"] else []):
            yield job_id, f"{len(tasks)} tasks of {len(decisions)} decisions, the effect is {states}"


def every_message_is_final(found: LedgerRows) -> Broken:
    """A message is sent exactly when a delivery succeeded; it is abandoned only after its attempts."""
    for row in found.rows["outbox"]:
        attempts = found.of("deliveries", row["job_id"])
        delivered = any(entry["outcome"] == "delivered" for entry in attempts)
        if delivered != (row["state"] == "sent"):
            yield row["job_id"], f"{row['state']}, delivered: {delivered}"
        if row["state"] == "abandoned" and len(attempts) < found.limits.delivery.delivery_attempts_max:
            yield row["job_id"], f"abandoned after {len(attempts)} delivery attempts"
        if row["state"] not in FINAL_MESSAGES:
            yield row["job_id"], f"the message is still {row['state']}"


def missing_required_effects_are_owned(found: LedgerRows) -> Broken:
    """A required effect that is missing after the end of its job has an open investigation."""
    for row in found.rows["effects"]:
        if not row["required"] or row["kind"] == "result_object" or row["state"] in DONE:
            continue
        if not any(entry["state"] == "open" for entry in found.of("investigations", row["job_id"])):
            yield row["job_id"], f"{row['kind']} is {row['state']} and no one owns that"


# From every single write of a simulation.


def effects_follow_their_transition_table(found: Evidence) -> Broken:
    """An effect moves as its table allows; a final message stays final, unless an abandoned one arrived."""
    for change in found.changes:
        before, after = change.before, change.after
        if before is None or change.relation not in ("effects", "outbox"):
            continue
        if before["state"] == after["state"]:
            continue
        if change.relation == "effects":
            allowed = (before["state"], after["state"]) in EFFECT_TRANSITIONS
        else:
            arrived_late = (before["state"], after["state"]) == ("abandoned", "sent")
            allowed = before["state"] not in FINAL_MESSAGES or arrived_late
        if not allowed:
            yield after["job_id"], f"{change.actor}: {change.relation} {before['state']} -> {after['state']}"


def terminal_record_and_intents_are_one_transaction(found: Evidence) -> Broken:
    """Terminal record, intents of effects and message are written in one transaction."""
    closed_by: dict[str, tuple[str, int]] = {}
    for change in found.changes:
        job_id = change.after["job_id"]
        if change.relation == "jobs" and change.after["state"] in TERMINAL_STATES:
            closed_by[job_id] = (change.actor, change.transaction)
        new = change.before is None
        follows = change.relation == "outbox" or (
            change.relation == "effects" and change.after["kind"] != "result_object"
        )
        if new and follows and closed_by.get(job_id) != (change.actor, change.transaction):
            yield job_id, f"{change.relation} was written apart from the terminal record"


def deliveries_match_arrivals(found: Evidence) -> Broken:
    """A message counts as delivered exactly when it arrived."""
    arrived = {message.message_id for message in found.channel.arrived}
    for row in found.rows["outbox"]:
        outcomes = [entry["outcome"] for entry in found.of("deliveries", row["job_id"])]
        if ("delivered" in outcomes) != (row["message_id"] in arrived):
            yield row["job_id"], f"deliveries {outcomes}, arrived: {row['message_id'] in arrived}"


def messages_never_change(found: Evidence) -> Broken:
    """However often it arrives, a message has the same content under its id, and matches its job."""
    payloads = {row["message_id"]: row["payload"] for row in found.rows["outbox"]}
    for message in found.channel.arrived:
        if dict(message.payload) != payloads.get(message.message_id):
            yield str(message.payload["job_id"]), f"{message.message_id} has another content"
    for row in found.rows["outbox"]:
        job = next(job for job in found.jobs if job["job_id"] == row["job_id"])
        if (row["payload"]["state"], row["payload"]["result_digest"]) != (job["state"], job["result_digest"]):
            yield row["job_id"], f"the message has {row['payload']['state']}"


def tasks_follow_a_verified_result(found: Evidence) -> Broken:
    """A task is made only by a consumer that found the right object in the store, and has its digest."""
    for change in found.changes:
        if change.relation != "review_tasks" or change.before is not None:
            continue
        job = next(job for job in found.jobs if job["job_id"] == change.after["job_id"])
        if job["state"] != "succeeded" or change.state != "succeeded":
            yield job["job_id"], f"a task of a job that is {change.state}"
        key = str(job["result_key"])
        was_stored = found.objects.right_since.get(key, change.number) < change.number
        if not was_stored or (change.actor, key) not in found.objects.found_right:
            fault = "was not verified" if was_stored else "was not stored"
            yield job["job_id"], f"{change.actor} made a task though its result {fault}"
    for task in found.rows["review_tasks"]:
        job = next(job for job in found.jobs if job["job_id"] == task["job_id"])
        if task["result_digest"] != job["result_digest"]:
            yield task["job_id"], "a task of another result"


def no_job_was_settled_too_early(found: Evidence) -> Broken:
    """`settled_at` is never written while a required effect is missing."""
    awaited: dict[str, set[str]] = {}
    for change in found.changes:
        after, missing = change.after, awaited.setdefault(change.after["job_id"], set())
        if change.relation == "effects" and after["required"] and after["kind"] != "result_object":
            (missing.discard if after["state"] in DONE else missing.add)(after["kind"])
        settles = change.relation == "jobs" and after["settled_at"] is not None
        if settles and missing and (change.before or {}).get("settled_at") is None:
            yield after["job_id"], f"settled before {sorted(missing)}"


EFFECT_INVARIANTS = (a_job_has_one_publication, terminal_record_has_intents, settled_jobs_have_their_required_effects)
EFFECT_INVARIANTS_AT_REST = (one_action_per_decision, every_message_is_final, missing_required_effects_are_owned)
EFFECT_INVARIANTS_OF_WRITES = (
    effects_follow_their_transition_table,
    terminal_record_and_intents_are_one_transaction,
    deliveries_match_arrivals,
    messages_never_change,
    tasks_follow_a_verified_result,
    no_job_was_settled_too_early,
)
