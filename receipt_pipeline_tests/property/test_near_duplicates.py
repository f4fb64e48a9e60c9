"""The short way past prints that cannot be alike gives the answers of the plain comparison."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from receipt_pipeline.chain.near_duplicates import (
    LAYOUT_APART_MAX,
    NUMBERS_SHARED_MIN,
    ScanPrint,
    find_near_duplicate,
    layout_apart,
    numbers_shared,
)
from receipt_pipeline.chain.values import ReceiptFields
from receipt_pipeline.core.items import EarlierItem

NO_FIELDS = ReceiptFields(merchant=None, date=None, total=None)
# Few numbers and short sketches, so that every share of them comes up.
NUMBERS = st.lists(st.integers(0, 11), min_size=1, max_size=9, unique=True).map(
    lambda given: tuple(f"{number:05x}" for number in sorted(given))
)
LAYOUTS = st.sampled_from(["ffff", "fff0", "00ff", ""])
TIMES = st.sampled_from([(), ("12:41",), ("12:58",)])
PRINTS = st.builds(ScanPrint, layout=LAYOUTS, numbers=NUMBERS, times=TIMES)


def plainly(own: ScanPrint, earlier: Sequence[ScanPrint]) -> str | None:
    for at, other in enumerate(earlier):
        if own.times and other.times and own.times != other.times:
            continue
        alike = numbers_shared(own, other) >= NUMBERS_SHARED_MIN
        if alike and layout_apart(own, other) <= LAYOUT_APART_MAX:
            return str(at)
    return None


@settings(max_examples=400)
@given(own=PRINTS, earlier=st.lists(PRINTS, max_size=6))
def test_the_first_like_print_is_the_one_that_a_plain_comparison_finds(
    own: ScanPrint, earlier: list[ScanPrint]
) -> None:
    items = [EarlierItem(str(at), NO_FIELDS.as_document(), other.as_document()) for at, other in enumerate(earlier)]
    assert find_near_duplicate(own, NO_FIELDS, items) == plainly(own, earlier)
