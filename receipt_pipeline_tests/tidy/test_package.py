"""An installed wheel carries what the checkout has: code, migrations, configuration, shipped data."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from receipt_pipeline_tests.suite_results import PROJECT
from receipt_pipeline_tests.tidy.tracked import named, tracked_files

SHARE = "share/receipt_pipeline/"
CONFIGURATION = ("workspace.yaml", "dagster.yaml", "dagster.postgres.yaml")
SHIPPED = ("data/samples",)


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for path in tracked_files():
        copy = source / path.relative_to(PROJECT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "."]
    built = subprocess.run([*command, "-w", target], cwd=source, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = target.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_a_wheel_carries_every_module(wheel_names: set[str]) -> None:
    # Code, and the artifacts, words and tables that it reads.
    modules = {named(path) for path in tracked_files() if path.is_relative_to(PROJECT / "receipt_pipeline")}
    assert modules - wheel_names == set()


def test_a_wheel_carries_configuration_and_shipped_data(wheel_names: set[str]) -> None:
    shared = {name.partition(SHARE)[2] for name in wheel_names if SHARE in name}
    shipped = {named(path) for path in tracked_files() if named(path).startswith(SHIPPED)}
    assert shared == {*CONFIGURATION, *shipped}


def test_a_wheel_carries_no_tests(wheel_names: set[str]) -> None:
    assert [name for name in wheel_names if name.startswith(("receipt_pipeline_tests", "training"))] == []


def test_the_two_dagster_configurations_differ_in_their_storage_alone() -> None:
    import yaml

    embedded, on_server = (
        yaml.safe_load((PROJECT / name).read_text()) for name in ("dagster.yaml", "dagster.postgres.yaml")
    )
    assert embedded.pop("storage") != on_server.pop("storage")
    assert embedded == on_server


def test_the_workspace_names_no_folder() -> None:
    assert "working_directory" not in Path(PROJECT / "workspace.yaml").read_text()
