"""Features of the second contract: the first one's values stay, further proofs and pixels join them."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.features import CONTRACT, compute_features
from receipt_pipeline.chain.features.amounts import MoneyBook
from receipt_pipeline.chain.features.picture import find_glyphs, read_picture
from receipt_pipeline.chain.features_v2 import (
    CONTRACT_V2,
    EVIDENCE_OF,
    FEATURE_CONTRACT_V2,
    MEANINGS,
    NO_EVIDENCE,
    admit_v2,
    compute_features_v2,
)
from receipt_pipeline.chain.values import NO_PAGES, DecodedScan, Features, Page, Reading, TextLine
from receipt_pipeline.training.draw_receipts import DrawnReceipt, Wear, draw_receipt
from receipt_pipeline.training.picture_weight import paste_figures
from receipt_pipeline_tests.printed_receipt import reading_of

GENUINE = """
LUMBUNG PADI SDN BHD
43000 KAJANG, SELANGOR
TAX INVOICE
BILL NO: 20180314077
DATE: 14/03/2018 12:41:52
2 X 4.50                   9.00
1 X 15.00                 15.00
SUBTOTAL                  24.00
GST 6%                     1.44
TOTAL                     25.44
ROUNDING ADJ               0.01
ROUNDED TOTAL          RM 25.45
CASH                      30.00
CHANGE                     4.55
GST SUMMARY       AMOUNT    TAX
SR @ 6%            24.00   1.44
"""


def values_of(text: str) -> dict[str, float]:
    """The features of a receipt as printed, without a picture."""
    reading = reading_of(text)
    return dict(compute_features_v2(NO_PAGES, reading, extract_fields(reading)).values)


def test_a_genuine_receipt_offers_its_proofs_and_keeps_them() -> None:
    values = values_of(GENUINE)
    raised = (
        "change_unmet",
        "tax_rate_unmet",
        "goods_short",
        "paid_otherwise",
        "paid_off_coin",
        "rounding_odd",
    )
    assert {name: values[name] for name in raised} == dict.fromkeys(raised, 0.0)
    assert (values["numbers_agreeing"], values["numbers_contradicting"]) == (1, 0)
    assert values["unexplained_share"] == values["sums_failed_share"] == 0


@pytest.mark.parametrize(
    ("was", "now", "feature"),
    [
        ("CHANGE                     4.55", "CHANGE                     9.55", "change_unmet"),
        ("CHANGE                     4.55", "CHANGE                     4.53", "paid_off_coin"),
        ("1.44", "0.44", "tax_rate_unmet"),
        ("14/03/2018", "24/03/2018", "numbers_contradicting"),
        ("DATE: 14/03/2018 12:41:52", "DATE: 14/03/2018 12:41:52\nPRINTED 19:42:10", "times_apart"),
        ("14/03/2018 12:41:52", "14/03/2018 12:41:52\nSATURDAY 12:41", "weekday_contradicting"),
        ("ROUNDING ADJ               0.01", "ROUNDING ADJ               0.41", "rounding_odd"),
        ("ROUNDED TOTAL          RM 25.45", "ROUNDED TOTAL          RM 85.47", "unexplained_share"),
    ],
)
def test_an_altered_value_shows_in_its_new_feature(was: str, now: str, feature: str) -> None:
    assert was in GENUINE
    assert values_of(GENUINE)[feature] == 0
    assert values_of(GENUINE.replace(was, now))[feature] > 0


def test_goods_that_cannot_make_the_total_fall_short_of_it() -> None:
    text = "SHOP\nTEA       3.90\nCAKE      2.78\nTOTAL     6.68\nCASH     10.00\nCHANGE    3.32\n"
    assert values_of(text)["goods_short"] == 0
    assert values_of(text.replace("6.68", "9.68").replace("3.32", "0.32"))["goods_short"] == 1


def test_what_is_paid_without_change_is_a_total() -> None:
    text = "SHOP\nTEA       3.90\nTOTAL     3.90\nVISA      3.90\n"
    assert values_of(text)["paid_otherwise"] == 0
    assert values_of(text.replace("TOTAL     3.90", "TOTAL     8.90"))["paid_otherwise"] == 1


def test_the_first_contracts_features_keep_their_values() -> None:
    reading = reading_of(GENUINE)
    fields = extract_fields(reading)
    first, second = compute_features(reading, fields), compute_features_v2(NO_PAGES, reading, fields)
    assert {name: second.values[name] for name in first.values} == first.values
    assert second.contract == FEATURE_CONTRACT_V2


def test_every_feature_has_a_meaning_and_a_kind_of_evidence() -> None:
    names = [bound.name for bound in CONTRACT_V2]
    assert len(set(names)) == len(names) > len(CONTRACT)
    assert set(MEANINGS) == set(names)
    assert set(EVIDENCE_OF) == set(names) - NO_EVIDENCE


def test_features_outside_the_second_contract_are_refused_by_name() -> None:
    values = values_of(GENUINE)
    assert admit_v2(Features(FEATURE_CONTRACT_V2, values)) == ()
    assert admit_v2(Features(FEATURE_CONTRACT_V2, {**values, "noise_outlier": 99.0})) == ("noise_outlier",)
    assert admit_v2(Features("receipt-features/v1", values)) == ("contract",)


def test_the_length_of_a_receipt_is_no_evidence_here_either() -> None:
    assert values_of(GENUINE + "ALL GOODS SOLD ARE FINAL\nPLEASE COME AGAIN\n" * 5) == values_of(GENUINE)


def scan_of(drawn: DrawnReceipt) -> tuple[DecodedScan, tuple[TextLine, ...]]:
    """The page and its lines where they were drawn, noisy as a sensor leaves it."""
    noise = np.random.default_rng(1).normal(0, 6, (drawn.image.height, drawn.image.width, 1))
    grey = np.asarray(drawn.image.convert("RGB")).astype(float)
    pixels = np.clip(grey + noise, 0, 255).astype(np.uint8)
    lines = tuple(
        TextLine(
            cell.text,
            (cell.boxes[0][0], cell.boxes[0][1], cell.boxes[-1][2], cell.boxes[-1][3]),
            1.0,
            0,
        )
        for cell in drawn.cells
        if cell.text
    )
    return DecodedScan("png", (Page(0, pixels),)), lines


def copied(scan: DecodedScan, lines: tuple[TextLine, ...]) -> bool:
    """Whether a figure of the page is the picture of another."""
    return read_picture(scan, Reading(lines, ((1, 1),)), MoneyBook((), ())).figures_copied


def test_a_figure_pasted_over_another_is_seen_as_its_copy() -> None:
    scan, lines = scan_of(draw_receipt(35, wear=Wear()))
    assert not copied(scan, lines)
    amounts = [line for line in lines if re.fullmatch(r"\d+\.\d\d", line.text)]
    source, target = next(
        (one, other)
        for one in amounts
        for other in amounts
        if len(one.text) == len(other.text) and one != other
    )
    pixels = scan.pages[0].pixels.copy()
    left, top, right, bottom = source.box
    to_right, to_top = target.box[2], target.box[1]
    pixels[to_top : to_top + bottom - top, to_right - (right - left) : to_right] = pixels[
        top:bottom, left:right
    ]
    assert copied(DecodedScan("png", (Page(0, pixels),)), lines)


def test_a_forger_of_pictures_alters_figures_and_saves_the_page_again() -> None:
    scan, lines = scan_of(draw_receipt(35, wear=Wear()))
    altered = paste_figures(scan, lines, random.Random(3))
    assert altered is not None
    assert altered.pages[0].pixels.shape == scan.pages[0].pixels.shape
    assert not np.array_equal(altered.pages[0].pixels, scan.pages[0].pixels)
    assert paste_figures(scan, lines[:1], random.Random(3)) is None


def test_a_page_that_was_never_on_paper_repeats_its_figures_and_proves_nothing() -> None:
    drawn = draw_receipt(35, wear=Wear())
    _, lines = scan_of(drawn)
    clean = DecodedScan("png", (Page(0, np.asarray(drawn.image.convert("RGB"))),))
    assert not copied(clean, lines)


def test_ink_is_found_where_it_was_drawn() -> None:
    drawn = draw_receipt(35, wear=Wear())
    _, lines = scan_of(drawn)
    line = next(line for line in lines if re.fullmatch(r"\d+\.\d\d", line.text))
    glyphs = find_glyphs(np.asarray(drawn.image.convert("L")), [line], ink_max=140)
    assert len(glyphs) == len(line.text) - 1
    assert all(line.box[0] <= glyph.left < line.box[2] for glyph in glyphs)
