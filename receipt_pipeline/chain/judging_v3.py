"""The judging of `chain-v3`: third contracts of features and policy, and how a scan stands in its job."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from receipt_pipeline.chain.features_v3 import (
    CONTRACT_V3,
    FEATURE_CONTRACT_V3,
    MEANINGS_V3,
    admit_v3,
    compute_features_v3,
)
from receipt_pipeline.chain.likeness import LAYOUT_APART_MAX, NUMBERS_SHARED_MIN
from receipt_pipeline.chain.policy import SUBMITTED_CONTRACT
from receipt_pipeline.chain.policy_submitted import AHEAD_DAYS_MAX, decide_submitted, stand
from receipt_pipeline.chain.risk import CALIBRATED_KIND
from receipt_pipeline.chain.stages import JudgingStages, Stage, speaking

JUDGING_V3 = JudgingStages(
    contract=FEATURE_CONTRACT_V3,
    policy_contract=SUBMITTED_CONTRACT,
    features=compute_features_v3,
    admit=admit_v3,
    decide=decide_submitted,
    explain=partial(speaking, MEANINGS_V3),
    stand=stand,
)


def judged_v3() -> tuple[Stage, ...]:
    """Return the last three stages of `chain-v3`."""
    contract = {"contract": FEATURE_CONTRACT_V3, "bounds": [asdict(bound) for bound in CONTRACT_V3]}
    limits = {
        "layout_apart_max": LAYOUT_APART_MAX,
        "numbers_shared_min": NUMBERS_SHARED_MIN,
        "ahead_days_max": AHEAD_DAYS_MAX,
    }
    return (
        Stage("features", "3", contract),
        Stage("risk", "2", {"kind": CALIBRATED_KIND}),
        Stage("policy", "3", {"contract": SUBMITTED_CONTRACT, **limits}),
    )
