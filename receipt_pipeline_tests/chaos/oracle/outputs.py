"""Invariants of results: objects behind successes, outcomes of the pinned chain, divergence on hold."""

from __future__ import annotations

from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.core.reasons import INPUT_CHANGED, INPUT_GONE, RESULT_QUARANTINED
from receipt_pipeline.core.result_document import parse_result
from receipt_pipeline.objects.store import scan_key
from receipt_pipeline_tests.chaos.oracle.evidence import Broken, LedgerRows, Row
from receipt_pipeline_tests.chaos.oracle.records import is_owned
from receipt_pipeline_tests.chaos.simulator.evidence import Evidence
from receipt_pipeline_tests.chaos.simulator.script import outcome_of_scan

COMPUTED = ("classified", "unchanged", "rejected")
DAMAGE_KINDS = ("missing_object", "altered_object")
OPEN_UPLOADS = ("intended", "unknown")


def differing_outputs_are_held(found: LedgerRows) -> Broken:
    """Two outputs of one decision, one of them rejected or delivered, are both listed in a quarantine."""
    for row in found.rows["refused_writes"]:
        if row["digest"] is None:
            continue
        job_id = row["job_id"]
        if row["ordinal"] is None:
            known = next(job["result_digest"] for job in found.jobs if job["job_id"] == job_id)
        else:
            known = found.of("items", job_id)[row["ordinal"]]["outcome_digest"]
        listed = {entry["digest"] for held in found.of("quarantine", job_id) for entry in held["digests"]}
        if known is not None and known != row["digest"] and not {known, row["digest"]} <= listed:
            yield job_id, f"{row['write_kind']} had {row['digest'][:15]}, the ledger has {known[:15]}"


def results_are_purged_only_when_due(found: LedgerRows) -> Broken:
    """A result is purged only after its retention, and its tombstone is written first."""
    for job in found.jobs:
        if job["result_purged_at"] is None:
            continue
        ends = job["terminal_at"] + job["result_retention_s"] * found.second
        tombstones = [row["buried_at"] for row in found.of("tombstones", job["job_id"])]
        missing = job["result_key"] is not None and (not tombstones or min(tombstones) > job["result_purged_at"])
        if job["result_purged_at"] < ends or missing:
            yield job["job_id"], f"purged at {job['result_purged_at']}, retained until {ends}"


# When nothing is due any more; these need the stored objects.


def every_success_has_its_object(found: LedgerRows) -> Broken:
    """The object of a success has its digest, is purged with a tombstone, or has an owned investigation."""
    for job in found.jobs:
        if job["state"] != "succeeded":
            continue
        key, job_id = job["result_key"], job["job_id"]
        digest = found.stored.get(key)
        if job["result_purged_at"] is not None:
            has_tombstone = any(row["object_key"] == key for row in found.of("tombstones", job_id))
            if digest is not None or not has_tombstone:
                yield job_id, "purged without a tombstone, or not deleted"
        elif digest != job["result_digest"] and not any(
            row["kind"] in DAMAGE_KINDS and is_owned(found, row) for row in found.of("investigations", job_id)
        ):
            yield job_id, f"{key} is {'altered' if digest else 'missing'} and no one owns that"


def every_stored_result_has_an_upload(found: LedgerRows) -> Broken:
    """Every stored result has an upload record; that of a closed job is finished."""
    uploads = {row["idempotency_key"]: row["state"] for row in found.rows["effects"] if row["kind"] == "result_object"}
    closed = {job["job_id"] for job in found.jobs if job["state"] in TERMINAL_STATES}
    for key in found.stored:
        job_id, state = key.split("/")[1], uploads.get(key)
        if state is None or (job_id in closed and state in OPEN_UPLOADS):
            yield job_id, f"object {key} has no finished upload: {state}"


# From every single write of a simulation.


def results_are_damaged_only_by_accidents(found: Evidence) -> Broken:
    """The product itself never alters, loses or misstates the result of a success."""
    for job in found.jobs:
        key = job["result_key"]
        if job["state"] != "succeeded" or job["result_purged_at"] is not None or key in found.objects.corrupted:
            continue
        if found.stored.get(key) != job["result_digest"]:
            yield job["job_id"], f"{key} is {'altered' if key in found.stored else 'missing'}"
        elif not _matches_the_ledger(found, job):
            yield job["job_id"], f"{key} differs from the ledger"


def _matches_the_ledger(found: Evidence, job: Row) -> bool:
    try:
        document = parse_result(found.objects.stored[job["result_key"]][0])
    except ObjectFault:
        return False
    stated = [(item.ordinal, item.decision_id, item.outcome.item_class, item.outcome_digest) for item in document.items]
    listed = [
        (row["ordinal"], row["decision_id"], row["item_class"], row["outcome_digest"])
        for row in found.of("items", job["job_id"])
    ]
    pinned = all(job[name] == value for name, value in document.pins.as_document().items())
    return stated == listed and document.job_id == job["job_id"] and pinned


def a_stored_result_is_not_uploaded_again(found: Evidence) -> Broken:
    """Where an earlier attempt stored the right object, a later attempt intends no second upload."""
    states: dict[str, str] = {}
    keys_of: dict[str, list[str]] = {}
    for change in found.changes:
        if change.relation != "effects" or change.after["kind"] != "result_object":
            continue
        key, job_id = change.after["idempotency_key"], change.after["job_id"]
        if change.before is None:
            for earlier in keys_of.setdefault(job_id, []):
                same = earlier.partition("-")[2] == key.partition("-")[2]
                was_stored = found.objects.right_since.get(earlier, change.number) < change.number
                usable = states[earlier] != "abandoned" and earlier not in found.objects.corrupted
                if same and was_stored and usable:
                    yield job_id, f"{key} was intended although {earlier} was stored"
            keys_of[job_id].append(key)
        states[key] = change.after["state"]


def outcomes_are_those_of_the_pinned_chain(found: Evidence) -> Broken:
    """A finished item has the outcome of its scan, whatever happened to its job."""
    for item in found.rows["items"]:
        if item["outcome_digest"] is None or item["item_class"] not in COMPUTED:
            continue
        right = outcome_of_scan(found.scans[item["sha256"].removeprefix("sha256:")])
        known = {right.outcome_digest}
        if found.outputs_changed:
            known.add(right.altered_for_drill().outcome_digest)
        damaged = scan_key(item["tenant"], item["sha256"]) in found.objects.garbled
        lacking = item["reason_code"] in (INPUT_CHANGED.code, INPUT_GONE.code)
        kept = item["item_class"] == "unchanged"  # It has the digest of an outcome of that class.
        if item["outcome_digest"] not in known and not (damaged and lacking) and not kept:
            yield item["job_id"], f"item {item['ordinal']} is {item['item_class']} {item['decision']}"


def served_results_are_verified_and_undisputed(found: Evidence) -> Broken:
    """A result is served with the ledger's digest or refused with a reason; in quarantine it is refused."""
    for job in found.jobs:
        job_id, answer = job["job_id"], found.served[job["job_id"]]
        held = [row for row in found.of("quarantine", job_id) if row["state"] == "open"]
        if held and answer != RESULT_QUARANTINED.code:
            yield job_id, f"in quarantine, and answered with {answer}"
        if held and any(not task["disputed"] for task in found.of("review_tasks", job_id)):
            yield job_id, "in quarantine, and its tasks are not disputed"
        if answer.startswith("sha256:") and answer != job["result_digest"]:
            yield job_id, f"{answer} is served"


OUTPUT_INVARIANTS = (differing_outputs_are_held, results_are_purged_only_when_due)
OUTPUT_INVARIANTS_AT_REST = (every_success_has_its_object, every_stored_result_has_an_upload)
OUTPUT_INVARIANTS_OF_WRITES = (
    results_are_damaged_only_by_accidents,
    a_stored_result_is_not_uploaded_again,
    outcomes_are_those_of_the_pinned_chain,
    served_results_are_verified_and_undisputed,
)
