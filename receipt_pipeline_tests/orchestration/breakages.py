"""What each asset check guards, broken by hand in a good home, and set right again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from receipt_pipeline.app import maintenance, operator
from receipt_pipeline.core.attempts import FencingToken
from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.reasons import RESULT_MISSING
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.ledger.investigations import InvestigationKind, InvestigationRequest, open_investigation
from receipt_pipeline.ledger.jobs.quarantine import record_rejected_write
from receipt_pipeline_tests.builders import claimed
from receipt_pipeline_tests.fakes.reconcile_bench import job_of
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome

STRANGER = f"results/job_nobody/1-{'a' * 64}"


@dataclass(frozen=True, slots=True)
class Broken:
    """What was broken: the ids that the check must name ("None" where there is none), and the repair."""

    job_ids: tuple[str, ...]
    mend: Callable[[], object]


Breakage = Callable[[OpenedHome], Broken]


def _edit(key: str, statement: str, undo: str) -> Breakage:
    """Edit the rows of the job `:job` behind the ledger's back; `undo` repairs them."""

    def broken(home: OpenedHome) -> Broken:
        job_id = job_of(home.bench, key)["job_id"]
        home.bench.edit(statement, job=job_id)
        return Broken((job_id,), lambda: home.bench.edit(undo, job=job_id))

    return broken


def _overdue_and_unowned(home: OpenedHome) -> Broken:
    house = home.bench
    short = LimitsRequest(max_queue_age_s=600, processing_timeout_s=900)
    job_id = house.bench.accept(key="slow", limits=short)
    claimed(house.ledger, job_id)
    house.edit("UPDATE jobs SET phase = 'quarantined' WHERE job_id = :job", job=job_id)
    return Broken((job_id,), partial(maintenance.reconcile_ledger, home.app))


def _lease_abandoned(home: OpenedHome) -> Broken:
    house = home.bench
    job_id = house.bench.accept(key="left")
    claimed(house.ledger, job_id)
    house.clock.advance(home.app.settings.limits.work.lease_ttl_s * 2)
    return Broken((job_id,), partial(maintenance.reconcile_ledger, home.app))


def _effect_unsettled(home: OpenedHome) -> Broken:
    house = home.bench
    job_id = str(house.succeeded(key="unconsumed")["job_id"])
    house.clock.advance(home.app.settings.limits.delivery.effect_deadline_s + 1)
    return Broken((job_id,), partial(maintenance.deliver_and_consume, home.app))


def _alert_standing(home: OpenedHome) -> Broken:
    broken = _lease_abandoned(home)
    maintenance.review_alerts(home.app)

    def mend() -> None:
        maintenance.reconcile_ledger(home.app)
        maintenance.review_alerts(home.app)

    return Broken(broken.job_ids, mend)


def _waiting_too_long(home: OpenedHome) -> Broken:
    house = home.bench
    job_id = house.bench.accept(key="waiting")
    house.clock.advance(home.app.settings.alert_thresholds().queue_age_s + 1)
    return Broken((job_id,), lambda: house.bench.work(job_id))


def _object_deleted(home: OpenedHome) -> Broken:
    job = job_of(home.bench, "one")
    path = home.bench.path(job["result_key"])
    kept = path.read_bytes()
    path.unlink()
    return Broken((job["job_id"],), lambda: path.write_bytes(kept))


def _byte_edited(home: OpenedHome) -> Broken:
    job = job_of(home.bench, "two")
    return _rewritten(home, job, b'"clear"', b'"cleaR"')


def _rewritten(home: OpenedHome, job: Mapping[str, Any], old: bytes, new: bytes) -> Broken:
    path = home.bench.path(job["result_key"])
    kept = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(kept.replace(old, new, 1))
    return Broken((job["job_id"],), lambda: path.write_bytes(kept))


def _other_pins_stated(home: OpenedHome) -> Broken:
    job = job_of(home.bench, "one")
    return _rewritten(home, job, job["risk_model_digest"].encode(), digest_of_bytes(b"x").encode())


def _stranger_stored(home: OpenedHome) -> Broken:
    grace_s = home.app.settings.limits.retention.orphan_grace_s
    path = home.bench.store_at(STRANGER, b"strange", age_s=grace_s)
    return Broken(("None",), path.unlink)


_TASK = (
    "job_id, tenant, ordinal, item_id, decision, reasons, result_digest, outcome_digest, state, disputed, created_at"
)


def _late_write_of_other_output(home: OpenedHome) -> Broken:
    job = job_of(home.bench, "one")
    with home.app.ledger.transaction() as tx:
        record_rejected_write(
            tx,
            FencingToken(job["job_id"], 0),
            write_kind="checkpoint",
            ordinal=0,
            digest=digest_of_bytes(b"another output"),
        )
    return Broken((job["job_id"],), partial(maintenance.reconcile_ledger, home.app))


def _question_without_owner(home: OpenedHome) -> Broken:
    job_id = job_of(home.bench, "one")["job_id"]
    with home.app.ledger.transaction() as tx:
        asked = open_investigation(
            tx,
            InvestigationRequest(
                InvestigationKind.MISSING_OBJECT,
                subject=job_id,
                job_id=job_id,
                reason=RESULT_MISSING,
                suspected_effect="the result is gone",
                allowed_repair="look",
            ),
            limits=home.app.settings.limits,
        )
    home.bench.edit("UPDATE investigations SET owner = 'nobody' WHERE investigation_id = :asked", asked=asked)
    return Broken((job_id,), lambda: operator.assign_investigation(home.app, home.principal, asked, owner="operations"))


BREAKAGES: Mapping[str, Breakage] = {
    "one_terminal_record_per_job": _edit(
        "one",
        "UPDATE events SET kind = 'withheld' WHERE job_id = :job AND kind = 'terminal'",
        "UPDATE events SET kind = 'terminal' WHERE job_id = :job AND kind = 'withheld'",
    ),
    "items_balance_to_accepted": _edit(
        "one",
        "UPDATE items SET item_class = NULL WHERE job_id = :job AND ordinal = 0",
        "UPDATE items SET item_class = 'classified' WHERE job_id = :job AND ordinal = 0",
    ),
    "every_accepted_job_is_terminal_or_owned": _overdue_and_unowned,
    "attempts_within_budget": _edit(
        "two",
        "UPDATE jobs SET attempts_spent = max_attempts + 1 WHERE job_id = :job",
        "UPDATE jobs SET attempts_spent = 0 WHERE job_id = :job",
    ),
    "no_abandoned_lease": _lease_abandoned,
    "effects_have_no_gaps": _effect_unsettled,
    "no_standing_alert": _alert_standing,
    "queue_age_within_capacity": _waiting_too_long,
    "every_success_has_its_object": _object_deleted,
    "objects_match_the_ledger": _byte_edited,
    "no_object_without_success": _stranger_stored,
    "results_state_their_pins": _other_pins_stated,
    "every_notification_delivered_or_explained": _edit(
        "two",
        "UPDATE outbox SET sends = sends + 1 WHERE job_id = :job",
        "UPDATE outbox SET sends = sends - 1 WHERE job_id = :job",
    ),
    "one_task_per_decision": _edit(
        "one",
        f"INSERT INTO review_tasks (decision_id, {_TASK}) SELECT 'sha256:double', {_TASK} FROM review_tasks"
        " WHERE job_id = :job AND ordinal = 0",
        "DELETE FROM review_tasks WHERE job_id = :job AND decision_id = 'sha256:double'",
    ),
    "no_divergent_result_served": _late_write_of_other_output,
    "report_matches_ledger": _edit(
        "one",
        "UPDATE jobs SET reason_code = 'FORGED.v1' WHERE job_id = :job",
        "UPDATE jobs SET reason_code = '' WHERE job_id = :job",
    ),
    "release_gate": _question_without_owner,
}
