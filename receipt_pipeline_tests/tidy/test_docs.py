"""The documents match the code, and their links point to files that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from receipt_pipeline.cli.main import app
from receipt_pipeline.core.effects import EFFECT_PROTOCOLS
from receipt_pipeline.core.lifecycle import JOB_TRANSITIONS, TerminalClass
from receipt_pipeline.ledger.schema.effects import effects
from receipt_pipeline.ledger.schema.jobs import metadata
from receipt_pipeline_tests.suite_results import PROJECT
from receipt_pipeline_tests.tidy.tracked import text_of, tracked_files

ARCHITECTURE = PROJECT / "docs" / "architecture.md"


def pages() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".md"]


def section(title: str) -> str:
    return text_of(ARCHITECTURE).partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_of_a_page_lead_to_files_that_exist(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text_of(page))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_the_lifecycle_diagram_shows_the_table_of_transitions() -> None:
    drawn = set(re.findall(r"^ +(\w+) --> (\w+): (\w+)$", section("The life of a job"), flags=re.MULTILINE))
    table = {(source.value, target.value, event.value) for (source, event), target in JOB_TRANSITIONS.items()}
    assert drawn == table


def test_every_terminal_class_is_explained() -> None:
    explained = set(re.findall(r"^\| \w+ \| (\w+) \|", section("The life of a job"), flags=re.MULTILINE))
    assert explained - {"terminal"} == {terminal_class.value for terminal_class in TerminalClass}


def test_every_effect_is_explained() -> None:
    explained = set(re.findall(r"^\| ([a-z_]+) \|", section("Effects"), flags=re.MULTILINE)) - {"effect"}
    assert explained == {protocol.kind.value for protocol in EFFECT_PROTOCOLS}


def test_every_table_of_the_ledger_is_explained() -> None:
    explained = set(re.findall(r"`(\w+)`", section("The ledger's tables")))
    assert effects.metadata is metadata
    assert explained == set(metadata.tables)


def test_every_setting_is_explained() -> None:
    settings = text_of(PROJECT / "receipt_pipeline" / "settings.py")
    read = set(re.findall(r'"(RECEIPTS_[A-Z_]+)"', settings))
    explained = set(re.findall(r"`(RECEIPTS_[A-Z_]+)", text_of(PROJECT / "docs" / "operator.md")))
    assert read - explained == set()


def leaves(command: Any, *path: str) -> list[str]:
    below = getattr(command, "commands", {})
    return [name for word in below for name in leaves(below[word], *path, word)] or [" ".join(path)]


def test_every_command_is_explained() -> None:
    shown = "\n".join(text_of(page) for page in pages())
    commands = leaves(get_command(app), "receipts")
    assert len(commands) > 10
    assert [name for name in commands if name not in shown] == []


def test_every_package_is_shown() -> None:
    packages = {
        path.relative_to(PROJECT / "receipt_pipeline").parts[0]
        for path in tracked_files()
        if path.suffix == ".py" and path.is_relative_to(PROJECT / "receipt_pipeline")
    } - {"__init__.py"}
    shown = {name.rstrip("/") for name in re.findall(r"`([a-z_.]+/?)`", section("The packages"))}
    assert packages - shown == set()
