"""The judging of `chain-v4`: that of `chain-v3` with the fourth contract of features."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial

from receipt_pipeline.chain.features_v4 import (
    CONTRACT_V4,
    EVIDENCE_OF_V4,
    FEATURE_CONTRACT_V4,
    MEANINGS_V4,
    admit_v4,
    compute_features_v4,
)
from receipt_pipeline.chain.judging_v3 import JUDGING_V3, judged_v3
from receipt_pipeline.chain.policy_submitted import decide_submitted
from receipt_pipeline.chain.stages import Stage, speaking

JUDGING_V4 = replace(
    JUDGING_V3,
    contract=FEATURE_CONTRACT_V4,
    features=compute_features_v4,
    admit=admit_v4,
    decide=partial(decide_submitted, evidence_of=EVIDENCE_OF_V4),
    explain=partial(speaking, MEANINGS_V4),
)


def judged_v4() -> tuple[Stage, ...]:
    """Return the last three stages of `chain-v4`; risk and policy are those of `chain-v3`."""
    contract = {"contract": FEATURE_CONTRACT_V4, "bounds": [asdict(bound) for bound in CONTRACT_V4]}
    return (Stage("features", "4", contract), *judged_v3()[1:])
