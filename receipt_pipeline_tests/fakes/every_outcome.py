"""A house with a job in every terminal class and in every held phase, made by the product's own services."""

from __future__ import annotations

import datetime as dt
from collections import deque
from typing import Any

from receipt_pipeline.core.attempts import FencingToken
from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.errors import StageFailed
from receipt_pipeline.core.items import ItemClass, ItemOutcome
from receipt_pipeline.core.reasons import ENGINE_OCR_UNAVAILABLE, IDENTITY_MISSING, SCAN_BROKEN
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.effects.consume import receive_event
from receipt_pipeline.ledger.jobs.cancel import cancel_job, supersede_job
from receipt_pipeline.ledger.jobs.failures import close_for_identity
from receipt_pipeline.ledger.jobs.quarantine import record_rejected_write
from receipt_pipeline.reconciliation.quarantine import resolve_quarantine
from receipt_pipeline.reconciliation.repair import reconcile_ledger
from receipt_pipeline.reconciliation.retention import expire_results
from receipt_pipeline_tests.fakes.effects_home import an_event
from receipt_pipeline_tests.fakes.failing_objects import PutFault
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench
from receipt_pipeline_tests.fakes.scripted_chain import Answer, ScriptedChain

REJECTION = ItemOutcome(item_class=ItemClass.REJECTED, reason_code=SCAN_BROKEN.code)
OTHER = digest_of_bytes(b"another output")
SHORT = LimitsRequest(max_queue_age_s=600, processing_timeout_s=300)
RETENTION_S = 86_400


def every_outcome(house: ReconcileBench) -> dict[str, str]:
    """Make the jobs, deliver and consume what is due; return their ids by what became of them."""
    made = _purged(house) | _worked_off(house) | _ended_on_request(house)
    made |= _overtaken_by_time(house) | _held(house) | _objects_in_trouble(house)
    house.finish_effects()
    job = house.bench.job(made["complete"])
    receive_event(house.effects, an_event(job, "again"), source="notification")
    receive_event(house.effects, an_event(job, "late", state="running"), source="notification")
    return made


def _answered(house: ReconcileBench, key: str, *answers: Answer | None, **given: Any) -> str:
    """Accept a job whose scans are answered like this, and work it until it is closed."""
    scans = house.bench.scans(len(answers), key)
    script = {scan: answer for scan, answer in zip(scans, answers, strict=True) if answer is not None}
    house.bench.chain = ScriptedChain(answers=script)
    job_id = house.bench.accept(key=key, items=len(answers), **given)
    house.bench.work_until_closed(job_id)
    house.bench.chain = ScriptedChain()
    return job_id


def _purged(house: ReconcileBench) -> dict[str, str]:
    job = house.finished(key="purged", limits=LimitsRequest(result_retention_s=RETENTION_S))
    house.clock.advance(RETENTION_S + 1)
    assert expire_results(house.services) == [job["job_id"]]
    return {"purged": job["job_id"]}


def _worked_off(house: ReconcileBench) -> dict[str, str]:
    vain = StageFailed(ENGINE_OCR_UNAVAILABLE)
    made = {
        "complete": house.finished(key="complete")["job_id"],
        "partial": _answered(house, "partial", None, REJECTION, vain),
        "rejected": _answered(house, "rejected", REJECTION),
        "attempts_exhausted": _answered(house, "exhausted", vain),
    }
    house.bench.objects.put_faults = deque([PutFault.REFUSED] * 3)
    made["dependency_failed"] = _answered(house, "unpublished", None)
    return made


def _ended_on_request(house: ReconcileBench) -> dict[str, str]:
    canceled, superseded, foreign = (
        house.bench.accept(key=key) for key in ("canceled", "superseded", "identity_failed")
    )
    with house.ledger.transaction() as tx:
        assert cancel_job(tx, job_id=canceled, limits=house.limits)
    replacing = house.finished(key="replacing")["job_id"]
    with house.ledger.transaction() as tx:
        assert supersede_job(tx, job_id=superseded, superseded_by=replacing, limits=house.limits)
        assert close_for_identity(tx, foreign, reason=IDENTITY_MISSING, limits=house.limits)
    return {"canceled": canceled, "superseded": superseded, "identity_failed": foreign}


def _overtaken_by_time(house: ReconcileBench) -> dict[str, str]:
    cutoff = house.clock.now() + dt.timedelta(seconds=7200)
    expired = house.bench.accept(key="expired", limits=SHORT)
    house.clock.advance(601)
    assert expired in reconcile_ledger(house.services).expired
    late = house.bench.accept(key="timed_out", cutoff=cutoff, limits=SHORT)

    def take_too_long(data: bytes) -> None:
        house.clock.advance(301)
        raise StageFailed(ENGINE_OCR_UNAVAILABLE)

    house.bench.chain = ScriptedChain(on_classify=take_too_long)
    house.bench.work_until_closed(late)
    house.bench.chain = ScriptedChain()
    return {"expired": expired, "timed_out": late}


def _held(house: ReconcileBench) -> dict[str, str]:
    """Hold one job for an unknown upload, one for divergence before and one after its ending."""
    open_one = house.bench.accept(key="divergent")
    _refuse_other(house, open_one)
    house.bench.work(open_one)
    closed, withdrawn = (house.finished(key=key)["job_id"] for key in ("disputed", "withdrawn"))
    for job_id in (closed, withdrawn):
        _refuse_other(house, job_id)
    reconcile_ledger(house.services)
    resolve_quarantine(house.services, job_id=withdrawn, actor="kim", withdraw=True, note="neither is right")
    unknown = house.bench.accept(key="unknown", limits=LimitsRequest(max_attempts=1))
    house.bench.objects.put_faults = deque([PutFault.ANSWER_LOST])
    house.bench.objects.blind_lookups = 1
    house.bench.work(unknown)
    return {"quarantined": open_one, "disputed": closed, "withdrawn": withdrawn, "reconciling": unknown}


def _refuse_other(house: ReconcileBench, job_id: str) -> None:
    with house.ledger.transaction() as tx:
        record_rejected_write(tx, FencingToken(job_id, 0), write_kind="checkpoint", ordinal=0, digest=OTHER)


def _objects_in_trouble(house: ReconcileBench) -> dict[str, str]:
    missing, altered = (house.finished(key=key) for key in ("missing", "altered"))
    house.path(missing["result_key"]).unlink()
    house.path(altered["result_key"]).write_bytes(b"altered")
    house.store_at("results/job_nobody/1-aa", b"strange", age_s=house.limits.retention.orphan_grace_s)
    return {"missing": missing["job_id"], "altered": altered["job_id"]}
