"""Every reason code is unique, versioned, documented, and provoked by a test."""

from __future__ import annotations

import re

from receipt_pipeline.core.reasons import REASONS, Remedy
from receipt_pipeline_tests.tidy.tracked import named, python_files, text_of
from receipt_pipeline_tests.tidy.write_reasons import REASONS_TEXT, REMEDIES, reasons_text


def test_every_code_is_declared_in_one_place() -> None:
    places: dict[str, list[str]] = {}
    for path in python_files("receipt_pipeline/core/reasons"):
        for code in re.findall(r'declare\(\s*"([^"]+)"', text_of(path)):
            places.setdefault(code, []).append(named(path))
    assert set(places) == set(REASONS)
    assert {code: found for code, found in places.items() if len(found) > 1} == {}


def test_every_code_carries_its_version_and_its_next_step() -> None:
    form = re.compile(r"[A-Z][A-Z_]*(\.[A-Z][A-Z_]*)?\.v[1-9][0-9]*")
    assert [code for code in REASONS if not form.fullmatch(code)] == []
    assert [reason.code for reason in REASONS.values() if not (reason.meaning and reason.next_step)] == []


def test_every_remedy_is_explained() -> None:
    assert set(REMEDIES) == set(Remedy)


def test_every_code_is_documented() -> None:
    # After a change of the register: python -m receipt_pipeline_tests.tidy.write_reasons
    assert REASONS_TEXT.read_text() == reasons_text()


def test_every_code_is_met_in_a_test() -> None:
    tests = "\n".join(
        text_of(path) for path in python_files("receipt_pipeline_tests") if "tidy" not in path.parts
    )
    # In a pattern the dots of a code are escaped.
    assert [code for code in REASONS if code not in tests.replace("\\", "")] == []
