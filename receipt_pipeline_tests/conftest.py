"""Settings, clock, databases and result file that the tests share."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from receipt_pipeline_tests.chromium import NO_CHROMIUM, find_chromium
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.parallel_order import FilesAndProcessTrees, folder_rank
from receipt_pipeline_tests.postgres_server import PostgresServer, named_server, private_server
from receipt_pipeline_tests.speed import folder_in_memory, share_compiled_statements
from receipt_pipeline_tests.suite_results import PROJECT, SuiteRecorder, attach_requirements, tree_state

if TYPE_CHECKING:
    from receipt_pipeline.accounting.facts import Accountant
    from receipt_pipeline.effects.context import EffectContext
    from receipt_pipeline.intake.context import IntakeContext
    from receipt_pipeline.ledger.engine import Ledger
    from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench
    from receipt_pipeline_tests.fakes.worker_bench import WorkerBench

# Before any test or product module is imported: keep the settings of the tests, drop those of the caller.
_FROM_ENVIRONMENT = {name: value for name, value in os.environ.items() if name.startswith("RECEIPTS_TEST_")}
for _name in [name for name in os.environ if name.startswith(("RECEIPTS_", "DAGSTER_"))]:
    del os.environ[_name]
# A shell's '&' leaves SIGINT ignored; Dagster copies that to SIGTERM, and child processes inherit both.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

NO_SHARED = "the folder ../shared is absent"
TEST_SETTINGS = pytest.StashKey[dict[str, str]]()

hypothesis.settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", type=Path, help="write outcomes and requirement ids to this file")


def pytest_configure(config: pytest.Config) -> None:
    worker_input: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker_input is not None:
        config.stash[TEST_SETTINGS] = worker_input["receipts_test_settings"]
        return
    config.stash[TEST_SETTINGS] = _FROM_ENVIRONMENT
    if config.option.basetemp is None:
        folder = folder_in_memory()
        if folder is not None:
            config.option.basetemp = folder / "tests"
            # Workers of a parallel run and all child processes inherit it.
            os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    shared = shared_folder(config)
    recorder = SuiteRecorder(
        results=config.getoption("results"),
        strict=_FROM_ENVIRONMENT.get("RECEIPTS_TEST_STRICT") == "1",
        allowed_skips=(NO_CHROMIUM,) if shared.is_dir() else (NO_CHROMIUM, NO_SHARED),
        before=tree_state(shared),
        shared=shared,
    )
    config.pluginmanager.register(recorder, "suite-recorder")
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(_SettingsForWorkers(), "settings-for-workers")


class _SettingsForWorkers:
    """Passes RECEIPTS_TEST_* into the workers of a parallel run, whose environment no longer has them."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["receipts_test_settings"] = _FROM_ENVIRONMENT


def shared_folder(config: pytest.Config) -> Path:
    return Path(config.stash[TEST_SETTINGS].get("RECEIPTS_TEST_SHARED", PROJECT.parent / "shared"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "sqlalchemy" in sys.modules:
        share_compiled_statements()
    items.sort(key=lambda item: (folder_rank(item.path), item.path))
    attach_requirements(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesAndProcessTrees:
    """Distribute the tests of a parallel run by file, and process trees to one worker."""
    return FilesAndProcessTrees(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("field") and not shared_folder(item.config).is_dir():
        pytest.skip(f"{NO_SHARED} (or set RECEIPTS_TEST_SHARED)")


@pytest.fixture(scope="session")
def shared(pytestconfig: pytest.Config) -> Path:
    """The folder ../shared with its cases and scans; a test that asks for it is marked `field`."""
    folder = shared_folder(pytestconfig)
    if not folder.is_dir():
        pytest.skip(f"{NO_SHARED} (or set RECEIPTS_TEST_SHARED)")
    return folder


@pytest.fixture(scope="session")
def chromium(pytestconfig: pytest.Config) -> Path:
    """A Chromium to drive; installed where this is root on Debian, and skipped with the reason otherwise."""
    found = find_chromium(pytestconfig.stash[TEST_SETTINGS].get("RECEIPTS_TEST_CHROMIUM"))
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[PostgresServer]:
    """A real server: the one of RECEIPTS_TEST_POSTGRES_URL, or the wheel's own for this process."""
    named = pytestconfig.stash[TEST_SETTINGS].get("RECEIPTS_TEST_POSTGRES_URL")
    if named:
        yield named_server(named)
        return
    with private_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    """The server's own database, with the scheme postgresql+psycopg; for what needs just any database."""
    return postgres_server.address


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger file at the newest revision, from which each test takes a copy."""
    path = tmp_path_factory.mktemp("template") / "ledger.db"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: PostgresServer) -> Iterator[str]:
    """The name of a database at the newest revision, from which each test takes a copy."""
    url = postgres_server.create_database()
    _migrate(url)
    yield url.partition("?")[0].rpartition("/")[2]
    postgres_server.drop_database(url)


@pytest.fixture
def sqlite_ledger_url(migrated_sqlite: Path, tmp_path: Path) -> str:
    path = tmp_path / "ledger.db"
    shutil.copyfile(migrated_sqlite, path)
    return f"sqlite:///{path}"


@pytest.fixture
def postgres_ledger_url(postgres_server: PostgresServer, migrated_postgres: str) -> Iterator[str]:
    url = postgres_server.create_database(template=migrated_postgres)
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def ledger_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_ledger_url"))


@pytest.fixture
def ledger(ledger_url: str, clock: FakeClock) -> Iterator[Ledger]:
    from receipt_pipeline.ledger.engine import open_ledger

    opened = open_ledger(ledger_url, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def bench(ledger: Ledger, clock: FakeClock, tmp_path: Path) -> WorkerBench:
    from receipt_pipeline.objects.local_store import LocalObjectStore
    from receipt_pipeline_tests.fakes.failing_objects import FailingObjects
    from receipt_pipeline_tests.fakes.worker_bench import WorkerBench

    return WorkerBench(ledger, FailingObjects(LocalObjectStore(tmp_path / "objects")), clock)


@pytest.fixture
def house(ledger: Ledger, clock: FakeClock, tmp_path: Path) -> ReconcileBench:
    from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench

    return ReconcileBench.build(ledger, clock, tmp_path)


@pytest.fixture
def services(ledger: Ledger, tmp_path: Path) -> EffectContext:
    from receipt_pipeline_tests.fakes.effects_home import effects_home

    return effects_home(ledger, tmp_path)


@pytest.fixture
def accountant(services: EffectContext, tmp_path: Path) -> Accountant:
    from receipt_pipeline_tests.fakes.accounted_home import an_accountant

    return an_accountant(services, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A place for scans outside the home; whoever writes a scan into it makes it."""
    return tmp_path / "folder"


@pytest.fixture
def intake(ledger: Ledger, tmp_path: Path) -> IntakeContext:
    """The doors of intake over each ledger, their home in the folder `home` of this test."""
    from receipt_pipeline_tests.intake_home import an_intake

    return an_intake(ledger, tmp_path / "home")


@pytest.fixture
def place(intake: IntakeContext) -> Path:
    from receipt_pipeline_tests.builders import TENANT

    drop_folder = intake.inbox / TENANT
    drop_folder.mkdir(parents=True)
    return drop_folder


@pytest.fixture
def watched_changes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever this test commits on SQLite is found again by a reader that comes again."""
    from receipt_pipeline.ledger.engine import Ledger, LedgerTransaction
    from receipt_pipeline_tests.fakes.change_watch import ChangeWatch

    watch = ChangeWatch()
    monkeypatch.setattr(Ledger, "transaction", lambda ledger: watch.transaction(ledger))
    monkeypatch.setattr(LedgerTransaction, "execute", lambda tx, *given: watch.execute(tx, *given))
    yield
    assert watch.missed == []


def _migrate(url: str) -> None:
    from receipt_pipeline.ledger.engine import open_ledger

    opened = open_ledger(url)
    opened.migrate()
    opened.close()
