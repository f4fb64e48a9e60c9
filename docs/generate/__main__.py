"""`make docs`: writes every generated page."""

from __future__ import annotations

from docs.generate.pages import PAGES
from receipt_pipeline_tests.suite_results import PROJECT

for name, text in PAGES.items():
    (PROJECT / "docs" / name).write_text(text(), encoding="utf-8")
