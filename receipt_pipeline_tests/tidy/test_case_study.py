"""The case study tells what the records say: its tables are written again and compared."""

from __future__ import annotations

from receipt_pipeline_tests.tidy.write_case_study import PAGE, story, with_blocks


def test_the_page_shows_the_records_of_its_story() -> None:
    page = PAGE.read_text(encoding="utf-8")
    blocks = story()
    assert with_blocks(page, blocks) == page
    assert "1 + 0 + 0 = 1, the accepted scope" in blocks["receipt"]
    assert "job_" not in page, "ids are redacted"
