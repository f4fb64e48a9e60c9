"""What no effect may break: intents with their cause, messages and tasks once, gaps owned."""

from __future__ import annotations

from collections.abc import Iterator

from receipt_pipeline.core.effects import EFFECT_TRANSITIONS
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline_tests.chaos.simulator.evidence import Evidence
from receipt_pipeline_tests.chaos.simulator.script import LIMITS

Broken = Iterator[tuple[str | None, str]]
DONE = ("committed", "abandoned")
SETTLED_MESSAGES = ("sent", "abandoned")


def a_job_names_one_publication(found: Evidence) -> Broken:
    """A success has one committed upload, the one that its record names; no other job has any."""
    for job in found.jobs:
        published = [
            row["idempotency_key"]
            for row in found.of("effects", job["job_id"])
            if row["kind"] == "result_object" and row["state"] == "committed"
        ]
        if published != ([job["result_key"]] if job["state"] == "succeeded" else []):
            yield job["job_id"], f"{job['state']} with committed uploads {published}"


def effects_move_along_their_table(found: Evidence) -> Broken:
    """An effect moves as its table allows; a settled message stays so, unless one given up did arrive."""
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
            allowed = before["state"] not in SETTLED_MESSAGES or arrived_late
        if not allowed:
            yield after["job_id"], f"{change.actor}: {change.relation} {before['state']} -> {after['state']}"


def an_ending_brings_its_intents(found: Evidence) -> Broken:
    """A terminal record comes with its message and the intents of its effects, no more and no fewer."""
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


def an_ending_and_its_intents_are_one_write(found: Evidence) -> Broken:
    """Terminal record, the intents of its effects and its message come in one transaction."""
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


def deliveries_tell_the_truth(found: Evidence) -> Broken:
    """A message counts as delivered when it arrived, and only then; it is given up only after its bound."""
    arrived = {message.message_id for message in found.channel.arrived}
    for row in found.rows["outbox"]:
        tried = found.of("deliveries", row["job_id"])
        delivered = any(entry["outcome"] == "delivered" for entry in tried)
        came = row["message_id"] in arrived
        if delivered != came or delivered != (row["state"] == "sent"):
            yield row["job_id"], f"{row['state']}, delivered: {delivered}, arrived: {came}"
        if row["state"] == "abandoned" and len(tried) < LIMITS.delivery.delivery_attempts_max:
            yield row["job_id"], f"given up after {len(tried)} tries"
        if row["state"] not in SETTLED_MESSAGES:
            yield row["job_id"], f"the message is still {row['state']}"


def a_message_never_changes(found: Evidence) -> Broken:
    """However often it arrives, a message says the same under its id, and what its job's record says."""
    said = {row["message_id"]: row["payload"] for row in found.rows["outbox"]}
    for message in found.channel.arrived:
        if dict(message.payload) != said.get(message.message_id):
            yield str(message.payload["job_id"]), f"{message.message_id} says something else"
    for row in found.rows["outbox"]:
        job = next(job for job in found.jobs if job["job_id"] == row["job_id"])
        if (row["payload"]["state"], row["payload"]["result_digest"]) != (job["state"], job["result_digest"]):
            yield row["job_id"], f"the message says {row['payload']['state']}"


def one_action_per_decision(found: Evidence) -> Broken:
    """The consumer acts once per success: a task per decision of its own, and none of anything else."""
    for job in found.jobs:
        job_id = job["job_id"]
        acted = [row for row in found.of("consumed", job_id) if row["outcome"] == "acted"]
        tasks = sorted(row["decision_id"] for row in found.of("review_tasks", job_id))
        made = sum(row["tasks_made"] for row in found.of("consumed", job_id))
        if len(acted) > 1 or made != len(tasks):
            yield job_id, f"acted {len(acted)} times, made {made} of {len(tasks)} tasks"
        decisions = sorted(
            row["decision_id"] for row in found.of("items", job_id) if row["item_class"] == "classified"
        )
        states = [row["state"] for row in found.of("effects", job_id) if row["kind"] == "review_tasks"]
        if tasks != (decisions if states == ["committed"] else []):
            yield job_id, f"{len(tasks)} tasks of {len(decisions)} decisions, the effect is {states}"


def tasks_stand_on_verified_results(found: Evidence) -> Broken:
    """A task is made only by who found the right object of its job in the store, and carries its digest."""
    for change in found.changes:
        if change.relation != "review_tasks" or change.before is not None:
            continue
        job = next(job for job in found.jobs if job["job_id"] == change.after["job_id"])
        if job["state"] != "succeeded" or change.state != "succeeded":
            yield job["job_id"], f"a task of a job that is {change.state}"
        stood = found.objects.right_since.get(str(job["result_key"]), change.number) < change.number
        verified = (change.actor, str(job["result_key"])) in found.objects.found_right
        if not stood or not verified:
            fault = "was not verified" if stood else "was not stored"
            yield job["job_id"], f"{change.actor} made a task though its result {fault}"
    for task in found.rows["review_tasks"]:
        job = next(job for job in found.jobs if job["job_id"] == task["job_id"])
        if task["result_digest"] != job["result_digest"]:
            yield task["job_id"], "a task of another result"


def a_settled_job_lacks_no_required_effect(found: Evidence) -> Broken:
    """A job is settled when it is closed and its required effects are done, and only then."""
    for job in found.jobs:
        missing = [
            row["kind"]
            for row in found.of("effects", job["job_id"])
            if row["required"] and row["kind"] != "result_object" and row["state"] not in DONE
        ]
        settled = job["state"] in TERMINAL_STATES and not missing
        if settled != (job["settled_at"] is not None):
            yield job["job_id"], f"{job['state']}, missing {missing}, settled at {job['settled_at']}"
    yield from _settled_too_early(found)


def _settled_too_early(found: Evidence) -> Broken:
    """Tell which jobs were settled while a required effect was still missing, whatever came later."""
    awaited: dict[str, set[str]] = {}
    for change in found.changes:
        after, missing = change.after, awaited.setdefault(change.after["job_id"], set())
        if change.relation == "effects" and after["required"] and after["kind"] != "result_object":
            (missing.discard if after["state"] in DONE else missing.add)(after["kind"])
        settles = change.relation == "jobs" and after["settled_at"] is not None
        if settles and missing and (change.before or {}).get("settled_at") is None:
            yield after["job_id"], f"settled before {sorted(missing)}"


def a_missing_required_effect_is_owned(found: Evidence) -> Broken:
    """What should have followed a closed job and did not has an open question of its own."""
    for row in found.rows["effects"]:
        if not row["required"] or row["kind"] == "result_object" or row["state"] in DONE:
            continue
        asked = [entry for entry in found.of("investigations", row["job_id"]) if entry["state"] == "open"]
        if not asked:
            yield row["job_id"], f"{row['kind']} is {row['state']} and nobody asks"


def unresolved_items_have_a_question(found: Evidence) -> Broken:
    """Every unresolved item of a closed job is named by a question that is open, or was answered."""
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
            yield job["job_id"], f"nobody asks about {sorted(unresolved - named)}"


EFFECT_INVARIANTS = (
    a_job_names_one_publication,
    effects_move_along_their_table,
    an_ending_brings_its_intents,
    an_ending_and_its_intents_are_one_write,
    deliveries_tell_the_truth,
    a_message_never_changes,
    one_action_per_decision,
    tasks_stand_on_verified_results,
    a_settled_job_lacks_no_required_effect,
    a_missing_required_effect_is_owned,
    unresolved_items_have_a_question,
)
