"""What the crash tests of the report share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.accounting.publish import publish_report
from receipt_pipeline.ledger.engine import open_ledger
from receipt_pipeline_tests.builders import an_accepted_job
from receipt_pipeline_tests.fakes.accounted_home import an_accountant
from receipt_pipeline_tests.fakes.effects_home import effects_home
from receipt_pipeline_tests.fakes.fake_clock import FakeClock


@pytest.fixture
def accountant(sqlite_ledger_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Accountant]:
    ledger = open_ledger(sqlite_ledger_url, clock=clock)
    made = an_accountant(effects_home(ledger, tmp_path), tmp_path)
    an_accepted_job(ledger)
    publish_report(made)
    yield made
    ledger.close()
