"""The texts claim only what holds, tests look at product state, and nothing speaks of one machine."""

from __future__ import annotations

import ast
import re

import pytest

from receipt_pipeline_tests.suite_results import PROJECT
from receipt_pipeline_tests.tidy.tracked import named, parsed, python_files, text_files, text_of

# Put together from halves, so that this file does not find itself.
CERTAIN_DELIVERY = re.compile(r"exactly[\s_-]+{0}|only[\s-]+{0} delivery".format("once"), re.IGNORECASE)
DENIAL = re.compile(r"\b(no|not|never|nobody|nowhere|cannot|without)\b", re.IGNORECASE)
MACHINE_PATH = re.compile(r"(?:^|[\s\"'(=`])/(?:work|farm|root|home|Users)/")
LOG_NAMES = frozenset({"cap" + "log", "assertLogs", "LogCaptureFixture", "record_tuples"})
LOG_TEXT = re.compile(r"\blogs?\b|\.log\b|_log\b", re.IGNORECASE)
UNCERTAINTY = "Where uncertainty remains"


def sentences(text: str) -> list[str]:
    """Split prose at sentence ends and at blank lines."""
    return [re.sub(r"\s+", " ", part) for part in re.split(r"(?<=[.!?:;])\s+|\n\s*\n", text)]


@pytest.mark.requirement("R160")
def test_certain_delivery_is_claimed_nowhere() -> None:
    claims = [
        f"{named(path)}: {sentence}"
        for path in text_files()
        for sentence in sentences(text_of(path))
        if CERTAIN_DELIVERY.search(sentence) and not DENIAL.search(sentence)
    ]
    assert claims == []


@pytest.mark.requirement("R160")
def test_the_readme_says_where_uncertainty_remains() -> None:
    readme = (PROJECT / "README.md").read_text()
    section = readme.partition(f"## {UNCERTAINTY}")[2].partition("\n## ")[0]
    said = {word for word in ("at least once", "unknown", "investigation") if word in section}
    assert said == {"at least once", "unknown", "investigation"}


@pytest.mark.requirement("R155")
def test_no_test_asserts_on_logs() -> None:
    on_logs = []
    for path in python_files("receipt_pipeline_tests"):
        for node in ast.walk(parsed(path)):
            name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None)
            if name in LOG_NAMES:
                on_logs.append(f"{named(path)}:{getattr(node, 'lineno', 0)} {name}")
            if isinstance(node, ast.Assert) and LOG_TEXT.search(ast.unparse(node.test)):
                on_logs.append(f"{named(path)}:{node.lineno} {ast.unparse(node.test)}")
    assert on_logs == []


def test_no_file_names_a_path_of_one_machine() -> None:
    places = [
        f"{named(path)}:{number}"
        for path in text_files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert places == []


def test_the_lock_names_no_package_index() -> None:
    lock = (PROJECT / "requirements.lock").read_text()
    assert re.findall(r"https?://\S+|^--?(?:index|extra-index|find-links)\S*", lock, flags=re.MULTILINE) == []
