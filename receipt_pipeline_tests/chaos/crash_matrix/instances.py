"""Fresh instances for the cells of the crash matrix: copies of one that was set up once."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa

from receipt_pipeline.chain.release import installed_image_digest
from receipt_pipeline.drill.sandbox import detached
from receipt_pipeline.settings import PACKAGE_ROOT
from receipt_pipeline_tests.chaos.crash_matrix.scenarios import MATRIX_LIMITS

SQLITE = "sqlite"
POSTGRES = "postgres"
LEDGERS = (SQLITE, POSTGRES)


class CellLedgers(Protocol):
    """Gives each cell a ledger of its own, at the newest revision and with its releases set up."""

    name: str

    def template(self, data_dir: Path) -> Mapping[str, str]:
        """Return the environment in which the ledger to copy is set up."""

    def fresh(self, data_dir: Path) -> Mapping[str, str]:
        """Make a copy for the data directory of one cell; returns its environment."""

    def drop(self, environment: Mapping[str, str]) -> None:
        """Remove a copy."""


@dataclass(slots=True)
class SqliteLedgers:
    """One file is set up and copied into each data directory."""

    name: str = SQLITE
    made: Path | None = None

    def template(self, data_dir: Path) -> Mapping[str, str]:
        """Return the environment of the first instance."""
        self.made = data_dir / "ledger.db"
        return {}

    def fresh(self, data_dir: Path) -> Mapping[str, str]:
        """Copy the file into the data directory."""
        assert self.made is not None
        data_dir.mkdir(parents=True)
        shutil.copyfile(self.made, data_dir / "ledger.db")
        return {}

    def drop(self, environment: Mapping[str, str]) -> None:
        """Do nothing: the copy is removed with its data directory."""


@dataclass(slots=True)
class PostgresLedgers:
    """One database is set up and copied for each cell, next to what the server has already."""

    url: sa.URL
    name: str = POSTGRES
    prefix: str = field(default_factory=lambda: f"receipts_matrix_{uuid.uuid4().hex[:8]}")
    copies: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def template(self, data_dir: Path) -> Mapping[str, str]:
        """Create the database that is copied."""
        self._do(f"CREATE DATABASE {self.prefix}")
        return self._environment(self.prefix)

    def fresh(self, data_dir: Path) -> Mapping[str, str]:
        """Copy the database; nothing else may use the original meanwhile."""
        with self.lock:
            self.copies += 1
            database = f"{self.prefix}_{self.copies}"
            self._do(f"CREATE DATABASE {database} TEMPLATE {self.prefix}")
        return self._environment(database)

    def drop(self, environment: Mapping[str, str]) -> None:
        """Drop the database, even while someone is connected."""
        database = sa.make_url(environment["RECEIPTS_POSTGRES_URL"]).database
        assert database is not None
        assert database.startswith(self.prefix)
        self._do(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")

    def _environment(self, database: str) -> Mapping[str, str]:
        url = self.url.set(drivername="postgresql", database=database)
        return {"RECEIPTS_POSTGRES_URL": url.render_as_string(hide_password=False)}

    def _do(self, statement: str) -> None:
        engine = sa.create_engine(self.url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            connection.execute(sa.text(statement))


@dataclass(slots=True)
class Instances:
    """Makes the folder, the ledger and the environment of each cell below one root."""

    root: Path
    ledgers: CellLedgers
    image_digest: str = field(default_factory=lambda: installed_image_digest(PACKAGE_ROOT))

    def template_environment(self) -> tuple[Path, dict[str, str]]:
        """Return folder and environment in which the first instance is to be set up."""
        folder = self.root / "template"
        (folder / "home").mkdir(parents=True)
        return folder, self._environment(folder, self.ledgers.template(folder / "home"))

    @contextmanager
    def fresh(self, name: str, limits: Mapping[str, str]) -> Iterator[tuple[Path, dict[str, str]]]:
        """Yield a cell's folder and environment; its ledger is dropped at the end."""
        folder = self.root / name
        folder.mkdir()
        given = self.ledgers.fresh(folder / "home")
        try:
            yield folder, self._environment(folder, given) | dict(limits)
        finally:
            self.ledgers.drop(given)

    def remove_template(self, environment: Mapping[str, str]) -> None:
        """Remove the ledger that was copied."""
        self.ledgers.drop(environment)

    def _environment(self, folder: Path, given: Mapping[str, str]) -> dict[str, str]:
        settings = {name: value for name, value in os.environ.items() if name.startswith("RECEIPTS_")}
        return {
            **detached(settings),
            **MATRIX_LIMITS,
            **given,
            "RECEIPTS_HOME": str(folder / "home"),
            "RECEIPTS_IMAGE_DIGEST": self.image_digest,
        }
