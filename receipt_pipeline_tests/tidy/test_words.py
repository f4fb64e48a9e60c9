"""Texts are plain and claim only what holds, tests look at product state, and no file names one machine."""

from __future__ import annotations

import ast
import re
from pathlib import Path

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


# Idioms that readers would have to learn. Each has a plain word in the glossary or in ordinary English.
IDIOMS = (
    r"told|tells?|stands?|standing|stood|hand(?:s|ed|ing)? (?:in|on|over|out)",
    r"(?:giv|gave)\w*(?: \w+){0,2} up|(?:no|some|any|every)body(?:'s)?|anyone's|anew|afresh|vain",
    r"rooms?|doors?|house|homes?(?! (?:page|currency))|mishaps?|mend(?:s|ed|ing)?|rob(?:s|bed)?",
    r"bur(?:y|ies|ied)|befalls?|work(?:s|ed|ing)?(?: \w+){0,2} off|t(?:ake|akes|aken|ook) (?:up|in)(?! to)",
    r"what became of|no outcome|(?:a|the|each|every|per|of|last) tr(?:y|ies)|patience|goes? on|went on",
    r"(?:lies?|lay) (?:in|at|beside|below|under|there)|offend\w*|freed|fenced|settl(?:e|es|ed|ing)",
    r"lets? (?:a|an|the)|so many|who(?:so)?ever|beside|of (?:yours|ours|its own)|(?:a|no) word|still so",
    r"(?:any|no) more(?! than)|judg(?:e|es|ed|ing)|at once|aloud|denominators?|reconciled truth",
    r"(?:open|owned) questions?|carr(?:y|ies|ied)|overt(?:akes?|ook|aken)|behaviour|(?:col|fav)our\w*",
    r"cancell(?:ed|ing)|(?:recogni|normali|serial|initial|summari|minimi|optimi|organi)s(?:e[sd]?|ing|ation)",
    r"catalogue|labelled|modelled|judgement|grey|whilst|artefacts?",
)
IDIOM = re.compile(rf"(?<![\w`])(?:{'|'.join(IDIOMS)})(?![\w`])", re.IGNORECASE)
QUOTED = re.compile(r"`[^`]*`")
MARKUP = re.compile(
    r"```.*?```|<(?:style|script)\b.*?</(?:style|script)>|\{[{%#].*?[}%#]\}|<[^>]*>|\]\([^)]*\)", re.DOTALL
)


def shown_strings(path: Path) -> str:
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    shown = [
        node.value
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and " " in node.value
        and id(node) not in docstrings
    ]
    if "cli" in path.parts:
        shown += [
            ast.get_docstring(node) or ""
            for node in ast.walk(parsed(path))
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        ]
    return "\n".join(shown)


def idioms_in(text: str) -> list[str]:
    return IDIOM.findall(QUOTED.sub(" ", text))


def test_what_users_read_is_plain_american_english() -> None:
    modules = python_files("receipt_pipeline/cli", "receipt_pipeline/core", "receipt_pipeline/defs")
    found = {named(path): idioms_in(shown_strings(path)) for path in modules}
    pages = [
        path
        for path in text_files()
        if (path.suffix == ".html" and "receipt_pipeline" in path.parts)
        or (path.suffix == ".md" and path.parent in (PROJECT, PROJECT / "docs"))
    ]
    spared = {PROJECT / "docs" / "requirements.md", PROJECT / "CHANGELOG.md"}
    found |= {named(path): idioms_in(MARKUP.sub(" ", text_of(path))) for path in pages if path not in spared}
    assert {name: idioms for name, idioms in found.items() if idioms} == {}
