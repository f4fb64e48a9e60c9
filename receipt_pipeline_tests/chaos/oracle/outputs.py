"""What no output may break: objects behind successes, outcomes of the pinned chain, divergence held."""

from __future__ import annotations

from collections.abc import Iterator

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.core.reasons import INPUT_CHANGED, INPUT_GONE, RESULT_QUARANTINED
from receipt_pipeline.core.result_document import parse_result
from receipt_pipeline.objects.store import RESULTS_PREFIX, scan_key
from receipt_pipeline_tests.chaos.simulator.evidence import Evidence, Row
from receipt_pipeline_tests.chaos.simulator.script import outcome_of_scan

Broken = Iterator[tuple[str | None, str]]
COMPUTED = ("classified", "unchanged", "rejected")


def every_success_has_its_verified_object(found: Evidence) -> Broken:
    """Under the key of a success stand the bytes of its digest; later damage has an open question."""
    for job in found.jobs:
        if job["state"] != "succeeded":
            continue
        key, stored = job["result_key"], found.objects.stored.get(job["result_key"])
        right = stored is not None and digest_of_bytes(stored[0]) == job["result_digest"]
        if job["result_purged_at"] is not None:
            buried = any(row["object_key"] == key for row in found.of("tombstones", job["job_id"]))
            if stored is not None or not buried:
                yield job["job_id"], "purged without a tombstone, or not deleted"
        elif not right and key not in found.objects.corrupted:
            yield job["job_id"], f"{key} is {'altered' if stored else 'missing'}"
        elif not right and not _is_asked(found, job, "missing_object", "altered_object"):
            yield job["job_id"], f"nobody asks about {key}"
        elif right and not _restates(found, job):
            yield job["job_id"], f"{key} does not say what the ledger says"


def _is_asked(found: Evidence, job: Row, *kinds: str) -> bool:
    rows = found.of("investigations", job["job_id"])
    return any(row["state"] == "open" and row["kind"] in kinds for row in rows)


def _restates(found: Evidence, job: Row) -> bool:
    try:
        document = parse_result(found.objects.stored[job["result_key"]][0])
    except ObjectFault:
        return False
    said = [
        (item.ordinal, item.decision_id, item.outcome.item_class, item.outcome_digest)
        for item in document.items
    ]
    listed = [
        (row["ordinal"], row["decision_id"], row["item_class"], row["outcome_digest"])
        for row in found.of("items", job["job_id"])
    ]
    pinned = all(job[name] == value for name, value in document.pins.as_document().items())
    return said == listed and document.job_id == job["job_id"] and pinned


def every_stored_result_has_its_row(found: Evidence) -> Broken:
    """No result lies in the store whose intent was not committed before."""
    intended = {row["idempotency_key"] for row in found.rows["effects"] if row["kind"] == "result_object"}
    for key in found.objects.stored:
        if key.startswith(RESULTS_PREFIX) and key not in intended:
            yield key.split("/")[1], f"{key} has no row"


def a_standing_upload_is_not_repeated(found: Evidence) -> Broken:
    """Where the right object of an earlier attempt stands, a later attempt intends no second one (R092)."""
    states: dict[str, str] = {}
    keys_of: dict[str, list[str]] = {}
    for change in found.changes:
        if change.relation != "effects" or change.after["kind"] != "result_object":
            continue
        key, job_id = change.after["idempotency_key"], change.after["job_id"]
        if change.before is None:
            for earlier in keys_of.setdefault(job_id, []):
                same = earlier.partition("-")[2] == key.partition("-")[2]
                stood = found.objects.right_since.get(earlier, change.number) < change.number
                if (
                    same
                    and stood
                    and states[earlier] != "abandoned"
                    and earlier not in found.objects.corrupted
                ):
                    yield job_id, f"{key} was intended although {earlier} stood"
            keys_of[job_id].append(key)
        states[key] = change.after["state"]


def outcomes_are_those_of_the_pinned_chain(found: Evidence) -> Broken:
    """However a job came to its end, a finished item has the outcome of its scan, as on every try (R113)."""
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


def differing_outputs_are_held(found: Evidence) -> Broken:
    """Two outputs of one decision, one of them refused or delivered, are both listed in a quarantine (D2)."""
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
            yield job_id, f"{row['write_kind']} carried {row['digest'][:15]}, the ledger has {known[:15]}"


def what_is_served_is_verified_and_undisputed(found: Evidence) -> Broken:
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


def results_are_purged_only_when_due(found: Evidence) -> Broken:
    """A result goes only after its retention, and its tombstone comes first."""
    for job in found.jobs:
        if job["result_purged_at"] is None:
            continue
        ends = job["terminal_at"] + job["result_retention_s"] * 1_000_000
        buried = [row["buried_at"] for row in found.of("tombstones", job["job_id"])]
        unburied = job["result_key"] is not None and (not buried or min(buried) > job["result_purged_at"])
        if job["result_purged_at"] < ends or unburied:
            yield job["job_id"], f"purged at {job['result_purged_at']}, retained until {ends}"


OUTPUT_INVARIANTS = (
    every_success_has_its_verified_object,
    every_stored_result_has_its_row,
    a_standing_upload_is_not_repeated,
    outcomes_are_those_of_the_pinned_chain,
    differing_outputs_are_held,
    what_is_served_is_verified_and_undisputed,
    results_are_purged_only_when_due,
)
