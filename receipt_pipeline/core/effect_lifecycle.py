"""Effects of a job: their kinds, their states, and the transitions between them."""

from __future__ import annotations

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
