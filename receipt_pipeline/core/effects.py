"""Effect states, and the protocol of each kind of effect."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EffectKind(StrEnum):
    """The consequences a job may have outside its ledger rows."""

    RESULT_OBJECT = "result_object"
    REVIEW_TASKS = "review_tasks"
    NOTIFICATION = "notification"
    STATUS_DOCUMENT = "status_document"
    REPORT_PUBLICATION = "report_publication"


class EffectState(StrEnum):
    """What the ledger knows of one effect."""

    INTENDED = "intended"
    UNKNOWN = "unknown"
    COMMITTED = "committed"
    FAILED = "failed"
    ABANDONED = "abandoned"


class EffectDemand(StrEnum):
    """Whether a missing effect is a gap (`required`) or only counted (`best_effort`)."""

    REQUIRED = "required"
    BEST_EFFORT = "best_effort"
    NONE = "none"


EFFECT_TRANSITIONS: frozenset[tuple[EffectState, EffectState]] = frozenset(
    {
        (EffectState.INTENDED, EffectState.COMMITTED),
        (EffectState.INTENDED, EffectState.UNKNOWN),
        (EffectState.INTENDED, EffectState.FAILED),
        (EffectState.INTENDED, EffectState.ABANDONED),
        (EffectState.UNKNOWN, EffectState.COMMITTED),
        (EffectState.UNKNOWN, EffectState.FAILED),
        (EffectState.UNKNOWN, EffectState.ABANDONED),
        (EffectState.FAILED, EffectState.COMMITTED),
    }
)


class Capability(StrEnum):
    """What a provider offers when it is not known whether a call arrived."""

    LOOKUP = "lookup"
    KEY_ONLY = "key_only"
    NEITHER = "neither"


class WhenUnknown(StrEnum):
    """What may follow a call whose end is not known."""

    LOOK_UP = "look_up"
    REPEAT_WITH_KEY = "repeat_with_key"
    INVESTIGATE = "investigate"


WHEN_UNKNOWN: dict[Capability, WhenUnknown] = {
    Capability.LOOKUP: WhenUnknown.LOOK_UP,
    Capability.KEY_ONLY: WhenUnknown.REPEAT_WITH_KEY,
    Capability.NEITHER: WhenUnknown.INVESTIGATE,
}

MEANING_OF_CAPABILITY: dict[Capability, str] = {
    Capability.LOOKUP: "it can be asked by key whether a call arrived",
    Capability.KEY_ONLY: "it ignores a repeated key, but cannot be asked",
    Capability.NEITHER: "it can neither be asked nor recognize a repeat",
}
MEANING_WHEN_UNKNOWN: dict[WhenUnknown, str] = {
    WhenUnknown.LOOK_UP: (
        "looked up before anything is repeated: if found, it is committed; if certainly absent, it may be"
        " repeated under the same key; without an answer it waits, then an investigation opens"
    ),
    WhenUnknown.REPEAT_WITH_KEY: (
        "repeated under the same key; an investigation opens when all attempts are used without an answer"
    ),
    WhenUnknown.INVESTIGATE: "never repeated automatically: an investigation opens immediately",
}


@dataclass(frozen=True, slots=True)
class EffectGaps:
    """Which query finds each kind of disagreement between ledger and effect, as `<finding>.<fault>`."""

    effect_without_ledger: str
    ledger_without_effect: str
    required_missing: str


@dataclass(frozen=True, slots=True)
class EffectProtocol:
    """How one kind of effect is made findable.

    Attributes:
        key: the idempotency key that stays the same over every attempt.
        intent, call, reference, reconcile: in the order in which they happen.
        capabilities: what its provider may offer; a notification's channel declares its own.
        recorded_in: where the ledger keeps what it knows of the effect.
    """

    kind: EffectKind
    key: str
    intent: str
    call: str
    reference: str
    reconcile: str
    capabilities: tuple[Capability, ...]
    recorded_in: str
    gaps: EffectGaps


EFFECT_PROTOCOLS: tuple[EffectProtocol, ...] = (
    EffectProtocol(
        EffectKind.RESULT_OBJECT,
        key="job id and digest of the bytes; the address adds the epoch of the attempt that stored them",
        intent="row with key, digest and size, committed before the upload",
        call="put if absent under the attempt's own address",
        reference="address and digest, read back before the job closes",
        reconcile="look up the addresses of all attempts and compare the digest; never store blindly again",
        capabilities=(Capability.LOOKUP,),
        recorded_in="`effects`",
        gaps=EffectGaps(
            effect_without_ledger="object_without_success.orphan",
            ledger_without_effect="success_without_object.missing",
            required_missing="effect_gaps.success_without_published_effect",
        ),
    ),
    EffectProtocol(
        EffectKind.REVIEW_TASKS,
        key="decision ID: job id, item id and pins",
        intent="row written in the transaction of the terminal record",
        call="tasks inserted once per decision ID after the object was verified",
        reference="decision IDs",
        reconcile="the consumer polls succeeded jobs whose tasks are not committed",
        capabilities=(Capability.LOOKUP,),
        recorded_in="`effects`",
        gaps=EffectGaps(
            effect_without_ledger="effect_gaps.effect_without_ledger",
            ledger_without_effect="task_faults.decision_without_task",
            required_missing="effect_gaps.effect_never_intended",
        ),
    ),
    EffectProtocol(
        EffectKind.NOTIFICATION,
        key="message id, made from the job id",
        intent="outbox message written in the transaction of the terminal record",
        call="the channel sends; repeats have the same message id; a channel that cannot be asked is"
        " marked as sending before the call",
        reference="the channel's own reference per delivery, or its acknowledgment",
        reconcile="as the channel allows: look up the message, repeat it under its id, or investigate",
        capabilities=(Capability.LOOKUP, Capability.KEY_ONLY, Capability.NEITHER),
        recorded_in="`effects`, `outbox`, `deliveries`",
        gaps=EffectGaps(
            effect_without_ledger="effect_gaps.effect_without_ledger",
            ledger_without_effect="effect_gaps.ledger_without_effect",
            required_missing="effect_gaps.message_missing",
        ),
    ),
    EffectProtocol(
        EffectKind.STATUS_DOCUMENT,
        key="tenant and job id: the path of the document",
        intent="the job's newest event number, in the transaction of every change",
        call="written to a temporary file and renamed over the old one",
        reference="the event number that the document shows",
        reconcile="a document that shows less than the newest event, or is gone, is written again",
        capabilities=(Capability.KEY_ONLY,),
        recorded_in="`jobs.latest_seq`, `jobs.status_shown_seq`",
        gaps=EffectGaps(
            effect_without_ledger="stale_status_jobs",
            ledger_without_effect="restore_status_documents",
            required_missing="stale_status_jobs",
        ),
    ),
    EffectProtocol(
        EffectKind.REPORT_PUBLICATION,
        key="number of the newest event in the account",
        intent="none: the report is a view and may be published again at any time",
        call="built as a temporary file and renamed over the old one under the publish lock",
        reference="the event number inside the published file",
        reconcile="the published file is opened read-only and compared with the ledger",
        capabilities=(Capability.LOOKUP,),
        recorded_in="nowhere: the published file itself is compared",
        gaps=EffectGaps(
            effect_without_ledger="report_matches_ledger",
            ledger_without_effect="report_matches_ledger",
            required_missing="report_matches_ledger",
        ),
    ),
)

PROTOCOL_OF: dict[EffectKind, EffectProtocol] = {protocol.kind: protocol for protocol in EFFECT_PROTOCOLS}
