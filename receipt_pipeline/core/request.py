"""The request as written, its fingerprint and its resolved limits."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.effects import EffectDemand

JOB_CONTRACT = "receipt-job/v1"
BATCH_CONTRACT = "receipt-batch/v1"
OPERATION_CLASS = "receipt-classification"
DEFAULT_RELEASE = "production"
DEFAULT_MAX_QUEUE_AGE_S = 86_400
DEFAULT_RESULT_RETENTION_S = 2_592_000
DEFAULT_MAX_ATTEMPTS = 3
PROCESSING_TIMEOUT_MIN_S = 900
PROCESSING_TIMEOUT_ITEM_S = 30
ITEM_SECONDS_MIN = 2


@dataclass(frozen=True, slots=True)
class ItemRequest:
    """One item as written: `sha256` is 64 hex digits, size in bytes; `label` is only for people."""

    item_id: str
    uri: str
    sha256: str
    size_bytes: int | None = None
    media_type: str | None = None
    id_explicit: bool = True

    @property
    def label(self) -> str:
        """Return the last part of the path as a label; never an identity."""
        return self.uri.replace("\\", "/").rsplit("/", 1)[-1][:200]


@dataclass(frozen=True, slots=True)
class LimitsRequest:
    """Limits as written; None where the request gives none."""

    max_queue_age_s: int | None = None
    processing_timeout_s: int | None = None
    result_retention_s: int | None = None
    max_attempts: int | None = None


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One job as its caller wrote it, parsed strictly."""

    contract: str
    idempotency_key: str
    items: tuple[ItemRequest, ...]
    operation_class: str = OPERATION_CLASS
    release: str = DEFAULT_RELEASE
    reconciliation_cutoff: dt.datetime | None = None
    limits: LimitsRequest = LimitsRequest()
    notification: EffectDemand = EffectDemand.BEST_EFFORT
    review_tasks: EffectDemand = EffectDemand.REQUIRED

    def fingerprint_document(self) -> dict[str, Any]:
        """Return what the fingerprint covers: the request as written, less paths and defaults.

        A value equal to the contract's static default counts as not given. Nothing that depends
        on time or configuration enters.
        """
        cutoff = self.reconciliation_cutoff
        given: dict[str, Any] = {
            "contract": self.contract,
            "operation_class": _unless(self.operation_class, OPERATION_CLASS),
            "release": _unless(self.release, DEFAULT_RELEASE),
            "reconciliation_cutoff": cutoff.astimezone(dt.UTC).isoformat() if cutoff else None,
            "limits.max_queue_age_s": _unless(self.limits.max_queue_age_s, DEFAULT_MAX_QUEUE_AGE_S),
            "limits.processing_timeout_s": self.limits.processing_timeout_s,
            "limits.result_retention_s": _unless(self.limits.result_retention_s, DEFAULT_RESULT_RETENTION_S),
            "limits.max_attempts": _unless(self.limits.max_attempts, DEFAULT_MAX_ATTEMPTS),
            "effects.notification": _unless(self.notification.value, EffectDemand.BEST_EFFORT.value),
            "effects.review_tasks": _unless(self.review_tasks.value, EffectDemand.REQUIRED.value),
            "items": digest_of([[item.item_id, item.sha256, item.size_bytes, item.media_type] for item in self.items]),
        }
        return {name: value for name, value in given.items() if value is not None}

    @property
    def fingerprint(self) -> str:
        """Return the digest that decides whether a repeated key is a replay or a conflict."""
        return digest_of(self.fingerprint_document())


def _unless(value: Any, default: Any) -> Any:
    return None if value == default else value


def differing_fields(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return the names (never the values) in which two fingerprint documents differ."""
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The limits frozen into a job: three clocks, attempts, and the absolute cutoff's margin."""

    max_queue_age_s: int
    processing_timeout_s: int
    result_retention_s: int
    max_attempts: int
    cutoff_margin_s: int

    def queue_deadline(self, *, submitted_at: dt.datetime, cutoff: dt.datetime | None) -> dt.datetime:
        """Return the earlier of submission + queue age and cutoff - margin."""
        by_age = submitted_at + dt.timedelta(seconds=self.max_queue_age_s)
        if cutoff is None:
            return by_age
        return min(by_age, cutoff - dt.timedelta(seconds=self.cutoff_margin_s))


def resolve_limits(written: LimitsRequest, *, items: int, cutoff_margin_s: int) -> JobLimits:
    """Fill the limits that the request does not give."""
    by_size = max(PROCESSING_TIMEOUT_MIN_S, PROCESSING_TIMEOUT_ITEM_S * items)
    return JobLimits(
        max_queue_age_s=_given(written.max_queue_age_s, DEFAULT_MAX_QUEUE_AGE_S),
        processing_timeout_s=_given(written.processing_timeout_s, by_size),
        result_retention_s=_given(written.result_retention_s, DEFAULT_RESULT_RETENTION_S),
        max_attempts=_given(written.max_attempts, DEFAULT_MAX_ATTEMPTS),
        cutoff_margin_s=cutoff_margin_s,
    )


def _given(value: int | None, default: int) -> int:
    return default if value is None else value
