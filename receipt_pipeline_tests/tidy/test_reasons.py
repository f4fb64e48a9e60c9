"""Every reason code is unique, versioned, and met in a test."""

from __future__ import annotations

import re

from receipt_pipeline.core.reasons import REASONS
from receipt_pipeline_tests.tidy.tracked import named, python_files, text_of


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


def test_every_code_is_met_in_a_test() -> None:
    tests = "\n".join(text_of(path) for path in python_files("receipt_pipeline_tests") if "tidy" not in path.parts)
    # In a pattern the dots of a code are escaped.
    assert [code for code in REASONS if code not in tests.replace("\\", "")] == []
