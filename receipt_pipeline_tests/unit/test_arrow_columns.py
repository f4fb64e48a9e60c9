"""Columns that are laid out by hand hold what Arrow itself would have made of the same values."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from receipt_pipeline.accounting.arrow import INT64_MAX, MONEY, TYPES, amounts_of, column_of

WHOLES = st.none() | st.integers(-INT64_MAX, INT64_MAX)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", st.none() | st.text()),
        ("whole", WHOLES),
        ("time", WHOLES),
        ("yes_no", st.none() | st.booleans()),
    ],
)
@settings(max_examples=50)
@given(data=st.data())
def test_a_column_holds_the_values_it_was_made_of(
    kind: str, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    given_values = data.draw(st.lists(values, max_size=20))
    made = column_of(given_values, kind)
    made.validate(full=True)
    assert made.equals(pa.array(given_values, TYPES[kind]))


@settings(max_examples=50)
@given(minors=st.lists(WHOLES, max_size=20))
def test_amounts_are_exact_to_the_last_digit(minors: list[int | None]) -> None:
    made = amounts_of(minors, ["EUR"] * len(minors))
    made.validate(full=True)
    expected = [None if minor is None else Decimal(minor).scaleb(-2) for minor in minors]
    assert made.equals(pa.array(expected, MONEY))


def test_a_null_in_a_document_and_an_absurd_number_are_no_values() -> None:
    assert column_of(["null", '{"a": 1}', None], "json").to_pylist() == [None, '{"a": 1}', None]
    assert column_of(["null"], "text").to_pylist() == ["null"]
    assert column_of([2**64, "7", True], "whole").to_pylist() == [None, 7, 1]


def test_a_column_is_made_without_pandas() -> None:
    """Importing pandas costs more than a small refresh of the report does."""
    program = (
        "import sys; from receipt_pipeline.accounting import publish, arrow_columns;"
        " arrow_columns.column_of(['a', None], 'text'); print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.strip() == "False"
