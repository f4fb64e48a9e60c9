"""A partial result hands out its rejection list: one line per refused item, with the next step."""

from __future__ import annotations

import csv
import io

import pytest

from receipt_pipeline.core.errors import NotAllowed, NotFound
from receipt_pipeline.core.reasons import SCAN_BROKEN
from receipt_pipeline.effects.results import COLUMNS, read_rejections, rejections_csv
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.status import read_status
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.builders import TENANT


@pytest.mark.requirement("R101")
def test_a_job_with_valid_and_refused_scans_is_partial_and_lists_the_refused_ones(ledger: Ledger) -> None:
    job = builders.a_succeeded_job(ledger, builders.an_outcome(), builders.a_rejection(), builders.an_outcome())
    job_id = job.token.job_id
    with ledger.reading() as tx:
        status = read_status(tx, job_id)
        lines = read_rejections(tx, job_id, tenant=TENANT)
    assert (status["state"], status["terminal_class"]) == ("succeeded", "partial")
    assert status["next_action"] == "read_the_result_and_fix_what_is_not_in_it"
    assert list(csv.DictReader(io.StringIO(rejections_csv(lines)))) == [
        {
            "item_id": "r-002",
            "source_name": "r-002.jpg",
            "reason_code": "SCAN.BROKEN.v1",
            "meaning": SCAN_BROKEN.meaning,
            "next_step": SCAN_BROKEN.next_step,
        }
    ]
    assert len(lines) == status["items"]["rejected"]


def test_an_open_job_has_no_list_and_a_foreign_one_is_unknown(ledger: Ledger) -> None:
    job_id = builders.an_accepted_job(ledger).job_id
    with ledger.reading() as tx:
        with pytest.raises(NotAllowed) as not_ready:
            read_rejections(tx, job_id, tenant=TENANT)
        assert not_ready.value.reason.code == "RESULT.NOT_READY.v1"
        with pytest.raises(NotFound):
            read_rejections(tx, job_id, tenant="globex")


def test_names_that_a_spreadsheet_would_run_are_made_inert() -> None:
    line = dict.fromkeys(COLUMNS, "plain") | {"item_id": "=1+1", "source_name": "@sum.jpg"}
    (read,) = csv.DictReader(io.StringIO(rejections_csv([line])))
    assert (read["item_id"], read["source_name"], read["meaning"]) == ("'=1+1", "'@sum.jpg", "plain")
