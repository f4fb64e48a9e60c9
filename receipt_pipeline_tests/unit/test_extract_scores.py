"""Scoring of extracted fields: strict and normalised, and the printed forms that are compared."""

from __future__ import annotations

from decimal import Decimal

import pytest

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.evaluation.fields import (
    FieldScore,
    evaluate_fields,
    normalized_value,
    read_amount,
    read_day,
    strict_fields,
)
from receipt_pipeline_tests.printed_receipt import reading_of

TRUTH = {"company": "SHOP SDN BHD", "date": "03/04/2018", "address": "NO 1, JALAN SATU", "total": "14.00"}


def test_equal_strings_are_right_in_both_scores() -> None:
    scores = evaluate_fields({"a": TRUTH}, {"a": TRUTH})
    assert scores.strict["overall"] == FieldScore(4, 4, 4)
    assert scores.strict["overall"].f1 == scores.normalized["overall"].f1 == 1.0


def test_equal_values_in_another_form_are_right_only_normalised() -> None:
    guess = {"company": "Shop Sdn. Bhd.", "date": "2018-04-03", "address": "No 1 Jalan Satu", "total": "RM14.00"}
    scores = evaluate_fields({"a": guess}, {"a": TRUTH})
    assert scores.strict["overall"].right == 0
    assert scores.normalized["overall"].right == 4


def test_unknown_truths_are_left_out_and_missing_guesses_lower_recall_only() -> None:
    scores = evaluate_fields({"a": {"total": ""}}, {"a": {**TRUTH, "date": None}})
    assert scores.strict["date"] == FieldScore(0, 0, 0)
    assert scores.strict["total"] == FieldScore(0, 0, 1)
    assert (scores.strict["date"].f1, scores.strict["total"].precision) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [("RM1,234.50", "1234.50"), ("8,20", "8.20"), ("-39,95", "-39.95"), ("1.234.50", None), ("a", None)],
)
def test_amounts_are_compared_as_numbers(text: str, value: str | None) -> None:
    assert read_amount(text) == (None if value is None else Decimal(value))


@pytest.mark.parametrize(
    ("text", "iso"),
    [("03 MAR 2018", "2018-03-03"), ("5/3/2018", "2018-03-05"), ("2018-01-05", "2018-01-05"), ("31/02/2018", None)],
)
def test_dates_are_compared_as_days(text: str, iso: str | None) -> None:
    assert read_day(text) == iso
    assert normalized_value("date", text) == (iso or "31022018")


def test_fields_are_compared_in_upper_case_and_totals_without_letters() -> None:
    fields = extract_fields(
        reading_of("Shop Sdn.Bhd (123456-X)\nNo 1. Jalan Satu,\n47000 Puchong\nDate 03/04/2018\nTotal  RM 14.00")
    )
    assert strict_fields(fields) == {
        "company": "SHOP SDN. BHD",
        "date": "03/04/2018",
        "address": "NO 1, JALAN SATU, 47000 PUCHONG",
        "total": "14.00",
    }


def test_a_dollar_sign_stays_with_its_total() -> None:
    assert strict_fields(extract_fields(reading_of("SHOP\nTOTAL  $8.20")))["total"] == "$8.20"
