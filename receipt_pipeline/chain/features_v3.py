"""Features of `receipt-features/v3`: those of the second contract, and numbers that check themselves."""

from __future__ import annotations

from collections.abc import Mapping

from receipt_pipeline.chain.features import FEATURE_DIGITS, FeatureBound, bounds_broken
from receipt_pipeline.chain.features_clock import sold_at_night
from receipt_pipeline.chain.features_places import read_places
from receipt_pipeline.chain.features_v2 import CONTRACT_V2, EVIDENCE_OF, compute_features_v2
from receipt_pipeline.chain.values import DecodedScan, Features, Reading, ReceiptFields
from receipt_pipeline.core.reasons import DATE_CONTRADICTED, SHOP_CONTRADICTED, Reason

FEATURE_CONTRACT_V3 = "receipt-features/v3"
NEW_V3: tuple[tuple[Reason, FeatureBound], ...] = (
    (SHOP_CONTRADICTED, FeatureBound("register_odd", "0/1", 0, 1, "a company number its letter denies")),
    (SHOP_CONTRADICTED, FeatureBound("postcode_odd", "0/1", 0, 1, "a postcode of another state")),
    (SHOP_CONTRADICTED, FeatureBound("telephone_odd", "0/1", 0, 1, "a telephone number of another state")),
    (SHOP_CONTRADICTED, FeatureBound("article_odd", "0/1", 0, 1, "an article code its last digit denies")),
    (DATE_CONTRADICTED, FeatureBound("time_at_night", "0/1", 0, 1, "a sale between midnight and six")),
)
CONTRACT_V3: tuple[FeatureBound, ...] = (*CONTRACT_V2, *(bound for _, bound in NEW_V3))
MEANINGS_V3: Mapping[str, str] = {bound.name: bound.meaning for bound in CONTRACT_V3}
EVIDENCE_OF_V3: Mapping[str, Reason] = {
    **EVIDENCE_OF,
    # A number that was never given out speaks of the shop, as its other numbers do.
    "tax_number_odd": SHOP_CONTRADICTED,
    **{bound.name: reason for reason, bound in NEW_V3},
}


def compute_features_v3(scan: DecodedScan, reading: Reading, fields: ReceiptFields) -> Features:
    """Compute the features of one reading and its pages; a scan without pages has no picture evidence."""
    texts = [line.text.upper() for line in reading.lines]
    places = read_places(texts)
    values: dict[str, float] = {
        **compute_features_v2(scan, reading, fields).values,
        "register_odd": places.register_odd,
        "postcode_odd": places.postcode_odd,
        "telephone_odd": places.telephone_odd,
        "article_odd": places.article_odd,
        "time_at_night": sold_at_night(texts),
    }
    ordered = {bound.name: round(float(values[bound.name]), FEATURE_DIGITS) for bound in CONTRACT_V3}
    return Features(contract=FEATURE_CONTRACT_V3, values=ordered)


def admit_v3(features: Features) -> tuple[str, ...]:
    """Return the names that break `receipt-features/v3`, in its order; empty when admitted."""
    return bounds_broken(features, CONTRACT_V3, contract=FEATURE_CONTRACT_V3)
