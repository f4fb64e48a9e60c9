"""Policy of the third contract: what the job that a scan came with says of it."""

from __future__ import annotations

import datetime as dt

import pytest

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.features_v3 import compute_features_v3
from receipt_pipeline.chain.policy import CODES_OF_CONTRACT, SUBMITTED_CONTRACT, load_policy
from receipt_pipeline.chain.policy_submitted import Standing, decide_submitted, stand
from receipt_pipeline.chain.values import NO_PAGES, Risk, Verdict
from receipt_pipeline.core.canonical import canonical_json, digest_of_bytes
from receipt_pipeline.core.items import NO_CONTEXT, EarlierItem, ItemContext
from receipt_pipeline_tests.printed_receipt import reading_of

READING = reading_of("SHOP SDN BHD\nINV 20180314001\nDATE: 14/03/2018\nTEA   RM 4.60\nTOTAL   RM 4.60\n")
FIELDS = extract_fields(READING)
DATA = canonical_json(
    {
        "contract": SUBMITTED_CONTRACT,
        "name": "test",
        "review_codes": sorted(CODES_OF_CONTRACT[SUBMITTED_CONTRACT]),
        "limits": {
            "risk_review_ppm": 400_000,
            "ocr_confidence_min_ppm": 800_000,
            "receipt_age_days_max": 90,
        },
    }
)
HARMLESS = Risk(0)
POLICY = load_policy(DATA, digest_of_bytes(DATA))


def verdict(
    accepted: str | None, *, of: str | None = None, risk: Risk = HARMLESS, duplicate_bytes: bool = False
) -> Verdict:
    """What the policy says of a receipt of 14 March 2018 whose job was accepted on that day."""
    day = None if accepted is None else dt.date.fromisoformat(accepted)
    return decide_submitted(
        POLICY,
        reading=READING,
        fields=FIELDS,
        features=compute_features_v3(NO_PAGES, READING, FIELDS),
        risk=risk,
        duplicate_bytes=duplicate_bytes,
        standing=Standing(day, None, of),
    )


@pytest.mark.parametrize(
    ("accepted", "reasons"),
    [
        ("2018-03-14", ()),
        ("2018-03-13", ()),
        ("2018-03-12", ("DATE.AFTER_SUBMISSION.v1",)),
        ("2018-06-12", ()),
        ("2018-06-13", ("DATE.TOO_OLD.v1",)),
        (None, ()),
    ],
)
def test_the_date_is_held_against_the_day_on_which_the_job_was_accepted(
    accepted: str | None, reasons: tuple[str, ...]
) -> None:
    assert verdict(accepted).reasons == reasons


def test_a_repeated_receipt_is_reviewed_before_all_but_repeated_bytes() -> None:
    assert verdict("2018-03-15", of="item-1").reasons == ("DUPLICATE.PICTURE.v1",)
    both = verdict("2018-03-12", of="item-1", duplicate_bytes=True)
    assert both.reasons == ("DUPLICATE.BYTES.v1", "DUPLICATE.PICTURE.v1", "DATE.AFTER_SUBMISSION.v1")


def test_numbers_that_fail_their_own_check_are_named_behind_a_high_risk() -> None:
    risk = Risk(900_000, (("register_odd", 2.0), ("tail_unexplained", 0.5)))
    assert verdict(None, risk=risk).reasons == (
        "RISK.HIGH.v1",
        "SHOP.CONTRADICTED.v1",
        "ARITHMETIC.DISAGREES.v1",
    )


def test_a_scan_without_job_has_no_day_and_no_item_before_it() -> None:
    standing = stand(NO_PAGES, reading_of("HELLO\n"), FIELDS, NO_CONTEXT)
    assert (standing, standing.evidence()) == (Standing(None, None, None), {})
    placed = ItemContext(dt.datetime(2018, 3, 14, 23, 59, tzinfo=dt.UTC), (EarlierItem("item-1", {}, {}),))
    assert stand(NO_PAGES, reading_of("HELLO\n"), FIELDS, placed).accepted_on == dt.date(2018, 3, 14)
