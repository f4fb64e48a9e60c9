"""Receipts side by side in one picture are several; one receipt with its amounts in a column is one."""

from __future__ import annotations

import pytest

from receipt_pipeline.chain.extract.fields import extract_fields, split_columns
from receipt_pipeline_tests.printed_receipt import reading_of

LEFT = ("TEA ROOM LTD", "LONDON", "05/04/2024", "Scone  3.20", "TOTAL  3.20", "CARD  3.20")
RIGHT = ("OLD KILN LTD", "LEEDS", "06/04/2024", "Bread  4.10", "TOTAL  4.10", "CARD  4.10")


def beside(left: tuple[str, ...], right: tuple[str, ...], *, gap: int = 12) -> str:
    """The two texts in one picture, `gap` letters apart."""
    width = max(map(len, left)) + gap
    return "\n".join(f"{one:<{width}}{other}" for one, other in zip(left, right, strict=True))


def test_two_receipts_side_by_side_are_several() -> None:
    page_text = reading_of(beside(LEFT, RIGHT))
    assert [len(column.lines) for column in split_columns(page_text)] == [9, 9]
    assert extract_fields(page_text).several_receipts


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\n".join(LEFT), id="one receipt"),
        pytest.param(
            "TEA ROOM\n05/04/2024\nScone            3.20\nBread            1.00\nMilk             1.00\n"
            "TOTAL            5.20\nCASH             5.20",
            id="amounts in a column",
        ),
        pytest.param(
            beside(LEFT, ("GOODS SOLD", "ARE NOT", "RETURNABLE", "THANK YOU", "COME AGAIN", "BYE BYE")),
            id="a text beside a receipt",
        ),
        pytest.param(beside(LEFT, RIGHT, gap=1), id="no room between"),
        pytest.param(f"{beside(LEFT, RIGHT)}\nTHE TOWN SQUARE, NOT FAR FROM HERE", id="crossed"),
        pytest.param("", id="nothing read"),
    ],
)
def test_one_receipt_is_never_taken_for_two(text: str) -> None:
    assert not extract_fields(reading_of(text)).several_receipts
