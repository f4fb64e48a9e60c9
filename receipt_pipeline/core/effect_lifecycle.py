"""Effects of a job: their kinds, states, and the order of evidence per kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EffectKind(StrEnum):
    """The consequences a job may have outside its ledger rows."""

    RESULT_OBJECT = "result_object"
    REVIEW_TASKS = "review_tasks"
    NOTIFICATION = "notification"


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


@dataclass(frozen=True, slots=True)
class EffectProtocol:
    """How one kind of effect is made findable: intent, call, reference, reconciliation (R095)."""

    kind: EffectKind
    intent: str
    call: str
    reference: str
    reconcile: str


EFFECT_PROTOCOLS: tuple[EffectProtocol, ...] = (
    EffectProtocol(
        EffectKind.RESULT_OBJECT,
        intent="row with key, digest and size, committed before the upload",
        call="put if absent under the attempt's own key",
        reference="object key and digest",
        reconcile="look the key up and compare the digest; never a second blind put",
    ),
    EffectProtocol(
        EffectKind.REVIEW_TASKS,
        intent="row written in the transaction of the terminal record",
        call="tasks inserted once per decision ID after the object was verified",
        reference="decision IDs",
        reconcile="the consumer polls succeeded jobs whose tasks are not committed",
    ),
    EffectProtocol(
        EffectKind.NOTIFICATION,
        intent="outbox message written in the transaction of the terminal record",
        call="the channel sends; repeats carry the same message id",
        reference="the channel's own reference per delivery",
        reconcile="look the message up in the channel; repeat within the bound",
    ),
)
