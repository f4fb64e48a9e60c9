"""What a simulated instance has to do: its jobs and scans, and the outcome of each scan."""

from __future__ import annotations

import datetime as dt
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.effects import EffectDemand
from receipt_pipeline.core.errors import StageFailed
from receipt_pipeline.core.items import Decision, ItemClass, ItemContext, ItemOutcome
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import ENGINE_OCR_UNAVAILABLE, RISK_HIGH, SCAN_BROKEN
from receipt_pipeline.core.request import JOB_CONTRACT, ItemRequest, JobRequest, LimitsRequest
from receipt_pipeline_tests.chaos.simulator.fakes import START
from receipt_pipeline_tests.chaos.simulator.scheduler import SimulatedCrash

# One may be too late for its cutoff; the others are always accepted.
JOBS = 6
TENANTS = ("acme", "globex")
CALLER = "kim"
# How often each kind of scan occurs. `poison` is never answered; `deadly` kills every process that reads it.
SCAN_KINDS = ("clear",) * 8 + ("review",) * 5 + ("broken", "broken", "flaky", "poison", "deadly")
FLAKY_FAILURES = 1

LIMITS = Limits().replace(
    retry_base_s=2.0,
    retry_cap_s=20.0,
    wave_slots=3,
    wave_jobs_max=2,
    wave_slice_s=90.0,
    wave_ttl_s=60.0,
    wave_start_s=60.0,
    overrun_grace_s=20.0,
    effect_deadline_s=600.0,
    orphan_grace_s=120.0,
    delivery_retry_s=2.0,
    cutoff_margin_s=60,
    # Longer than any run: no registration is renewed by its own process here.
    worker_ttl_s=1e7,
    investigation_deadline_s=1e7,
)


@dataclass(frozen=True, slots=True)
class WantedJob:
    """One job that callers submit: the request, its tenant, and the scans by hex digest."""

    tenant: str
    request: JobRequest
    scans: dict[str, bytes]

    @property
    def key(self) -> tuple[str, str]:
        """Return what names the job: tenant and idempotency key."""
        return self.tenant, self.request.idempotency_key


@dataclass(frozen=True, slots=True)
class SimulatedScans:
    """Scans from memory through a pipe, because `intake` reads descriptors."""

    scans: dict[str, bytes]

    def confine(self, item: ItemRequest, pointer: str) -> None:
        """Refuse nothing: these paths lead nowhere."""

    def open(self, item: ItemRequest, pointer: str) -> int:
        """Return a descriptor from which the scan can be read."""
        reading, writing = os.pipe()
        os.write(writing, self.scans[item.sha256])
        os.close(writing)
        return reading


def wanted_jobs(seed: int) -> list[WantedJob]:
    """Return the jobs of a seed; one of them repeats the items of an earlier one under a key of its own."""
    drawn = random.Random(f"jobs {seed}")
    jobs = [_job(drawn, number) for number in range(1, JOBS + 1)]
    first = jobs[0]
    jobs[-1] = WantedJob(first.tenant, _request(drawn, len(jobs), first.request.items), first.scans)
    return jobs


def _job(drawn: random.Random, number: int) -> WantedJob:
    scans = {}
    listed = []
    for ordinal in range(drawn.choice((1, 1, 1, 2, 2, 3))):
        data = f"{drawn.choice(SCAN_KINDS)}|job-{number}|{ordinal}".encode()
        digest = digest_of_bytes(data).removeprefix("sha256:")
        scans[digest] = data
        listed.append(ItemRequest(item_id=f"r-{ordinal + 1}", uri=f"{ordinal}.jpg", sha256=digest))
    return WantedJob(drawn.choice(TENANTS), _request(drawn, number, tuple(listed)), scans)


def _request(drawn: random.Random, number: int, listed: tuple[ItemRequest, ...]) -> JobRequest:
    limits = LimitsRequest(
        max_queue_age_s=drawn.choice((60, 900, 900, None, None, None)),
        processing_timeout_s=drawn.choice((60, 300, None, None, None, None)),
        result_retention_s=drawn.choice((200, None, None)),
        max_attempts=drawn.choice((1, 2, 3, 3, 3)),
    )
    has_cutoff = number == 2 and drawn.random() < 0.6
    cutoff = START + dt.timedelta(seconds=drawn.choice((200, 400))) if has_cutoff else None
    demands = (EffectDemand.BEST_EFFORT, EffectDemand.REQUIRED, EffectDemand.NONE)
    return JobRequest(
        contract=JOB_CONTRACT,
        idempotency_key=f"job-{number}",
        items=listed,
        reconciliation_cutoff=cutoff,
        limits=limits,
        notification=drawn.choices(demands, (3, 3, 1))[0],
        review_tasks=drawn.choices(demands, (1, 4, 1))[0],
    )


def outcome_of_scan(data: bytes) -> ItemOutcome:
    """Return the chain's outcome for a scan, the same on every attempt."""
    kind = data.partition(b"|")[0].decode()
    if kind == "broken":
        return ItemOutcome(item_class=ItemClass.REJECTED, reason_code=SCAN_BROKEN.code)
    decision = Decision.REVIEW if kind == "review" else Decision.CLEAR
    minor = int(digest_of_bytes(data)[7:12], 16)
    return ItemOutcome(
        item_class=ItemClass.CLASSIFIED,
        decision=decision,
        risk_ppm=minor % 1_000_000,
        fields={"total": {"minor": minor, "currency": "EUR", "printed": "simulated"}},
        reasons=(RISK_HIGH.code,) if decision is Decision.REVIEW else (),
    )


@dataclass(slots=True)
class SimulatedChain:
    """Answers by the scan's bytes and counts how often it was asked."""

    asked: Counter[bytes] = field(default_factory=Counter)

    def classify(
        self, data: bytes, *, duplicate_bytes: bool, on_page: Callable[[], None], context: ItemContext
    ) -> ItemOutcome:
        """Answer for one scan, fail, or end the process."""
        self.asked[data] += 1
        kind = data.partition(b"|")[0].decode()
        if kind == "deadly":
            raise SimulatedCrash
        if kind == "poison" or (kind == "flaky" and self.asked[data] <= FLAKY_FAILURES):
            raise StageFailed(ENGINE_OCR_UNAVAILABLE, stage="simulated")
        on_page()
        return outcome_of_scan(data)
