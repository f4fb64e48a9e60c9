"""Takes the pictures of docs/img from a served instance: catalog, checks, a wave's run, the account.

Run it as `make screenshots`; it serves a temporary data directory, submits
drawn receipts, breaks one result object so that a check is red, and drives headless Chromium. With
`--page` it takes the page for people alone, at phone and desk width, in light and in dark.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright
from sqlalchemy import select

from receipt_pipeline.app import maintenance, submitter
from receipt_pipeline.app.context import AppContext, open_app
from receipt_pipeline.app.setup import drop_samples
from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.request import BATCH_CONTRACT
from receipt_pipeline.defs.client import launch_job, wait_for_run
from receipt_pipeline.ledger.engine import open_ledger
from receipt_pipeline.ledger.schema.jobs import jobs, waves
from receipt_pipeline.runtime.supervisor import Supervisor, running_instance
from receipt_pipeline.settings import read_settings
from receipt_pipeline_tests.chromium import find_chromium
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home
from receipt_pipeline_tests.suite_results import PROJECT
from training.draw import draw_receipt

IMAGES = PROJECT / "docs" / "img"
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTHS: dict[str, ViewportSize] = {"phone": {"width": 390, "height": 844}, "desk": {"width": 1280, "height": 900}}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WAIT_S = 300
SETTLE_MS = 8_000
BATCH_ROWS = 24


def main() -> None:
    """Serve, work, break one object, and take every picture."""
    found = find_chromium(None)
    if isinstance(found, str):
        raise SystemExit(found)
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="receipts-pictures-") as folder:
        settings = read_settings({**os.environ, "RECEIPTS_HOME": f"{folder}/home"})
        services = open_app(settings)
        with running_instance(settings) as served:
            _work(services)
            _lose_one_object(services)
            _account(served)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=str(found), args=CHROMIUM_FLAGS)
                page = browser.new_page(viewport={"width": 1500, "height": 1000})
                _pictures(page, served, _wave_run_id(services))
                browser.close()
        services.close()
    page_alone()


def _work(services: AppContext) -> None:
    """Drop the samples and a batch of drawn receipts, and wait until everything is settled."""
    drop_samples(services.settings)
    _drop_batch(services.settings.inbox / services.settings.tenant)
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        found = submitter.list_jobs(services, services.principal())
        terminal = len(found) == BATCH_ROWS + 1 and all(job["terminal_at"] for job in found)
        if terminal and not maintenance.jobs_with_unfinished_effects(services, [job["job_id"] for job in found]):
            return
        time.sleep(1)
    raise SystemExit("the receipts were not classified in time")


def _drop_batch(inbox: Path) -> None:
    rows = []
    for seed in range(BATCH_ROWS):
        path = inbox / f"drawn-{seed:02d}.jpg"
        draw_receipt(seed).image.convert("RGB").save(path, quality=80)
        digest = digest_of_bytes(path.read_bytes()).removeprefix("sha256:")
        rows.append({"idempotency_key": f"drawn-{seed:02d}", "uri": path.name, "sha256": digest})
    half = inbox / ".batch.json.tmp"
    half.write_text(json.dumps({"contract": BATCH_CONTRACT, "rows": rows}))
    half.rename(inbox / "batch.json")


def _lose_one_object(services: AppContext) -> None:
    with services.ledger.reading() as tx:
        key = tx.scalar(select(jobs.c.result_key).where(jobs.c.result_key.is_not(None)).limit(1))
    services.store.delete(str(key))


def _account(served: Supervisor) -> None:
    run_id = launch_job(served.port, "accounting")
    wait_for_run(served.port, run_id, job="accounting", wait_s=WAIT_S)


def _wave_run_id(services: AppContext) -> str:
    with services.ledger.reading() as tx:
        return str(tx.scalar(select(waves.c.run_id).where(waves.c.run_id.is_not(None)).limit(1)))


def _pictures(page: Page, served: Supervisor, wave_run_id: str) -> None:
    pages = {
        "asset-catalog": "/locations/receipts/asset-groups/account/list",
        "asset-graph": "/locations/receipts/asset-groups/account/lineage",
        "checks-red": "/assets/result_objects?view=checks&checkDetail=every_success_has_its_object",
        "wave-gantt": f"/runs/{wave_run_id}",
        "job-accounting": "/assets/job_accounting?view=overview",
        "sensors": "/automation",
    }
    page.goto(served.address)  # The first page loads the code location; no picture is taken of that.
    page.wait_for_timeout(3 * SETTLE_MS)
    for name, path in pages.items():
        page.goto(f"{served.address}{path}")
        page.wait_for_timeout(SETTLE_MS)
        page.screenshot(path=IMAGES / f"{name}.png")
    page.goto(f"{served.address}{pages['job-accounting']}")
    chart = page.locator("tr").filter(has=page.get_by_text("chart", exact=True))
    chart.get_by_text("[Show Markdown]").first.click(timeout=60_000)
    page.wait_for_timeout(2_000)
    page.screenshot(path=IMAGES / "job-accounting-chart.png")


def _page_pictures(browser: Browser, page_file: Path, images: Path) -> None:
    """Take the page for people at phone and desk width, in light and in dark."""
    for width_name, viewport in WIDTHS.items():
        for scheme in SCHEMES:
            context = browser.new_context(viewport=viewport, color_scheme=scheme, device_scale_factor=1)
            page = context.new_page()
            page.goto(page_file.as_uri())
            page.screenshot(path=images / f"operations-{width_name}-{scheme}.png", full_page=True)
            context.close()


def page_alone() -> None:
    """Take the page's pictures over a day that is made without a server: several endings, and a queue."""
    found = find_chromium(None)
    if isinstance(found, str):
        raise SystemExit(found)
    with tempfile.TemporaryDirectory(prefix="receipts-page-") as folder, pytest.MonkeyPatch.context() as patch:
        ledger = open_ledger(f"sqlite:///{folder}/empty.db")
        ledger.migrate()
        ledger.close()
        home = open_home(Path(folder) / "home", Path(folder) / "empty.db", FakeClock(), patch)
        _a_day(home)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=str(found), args=CHROMIUM_FLAGS)
            _page_pictures(browser, maintenance.publish_page(home.app), IMAGES)
            browser.close()


def _a_day(home: OpenedHome) -> None:
    """Settle jobs of several sizes and spans, lose one result, let one expire, and leave some waiting."""
    house = home.bench
    for number in range(12):
        job_id = house.bench.accept(key=f"done-{number}", items=1 + number % 4)
        home.clock.advance(5 + (37 * number) % 50)
        house.bench.work(job_id)
        house.finish_effects()
    lost = house.finished(key="lost")
    house.path(lost["result_key"]).unlink()
    home.submit("late", limits={"max_queue_age_s": 60})
    home.clock.advance(61)
    maintenance.reconcile_ledger(home.app)
    for number in range(3):
        home.submit(f"waiting-{number}", items=2 + number, release="2027-01")
        home.clock.advance(240)
    maintenance.dispatch_jobs(home.app)  # The code location ticks, as where it is served.
    maintenance.sweep_objects(home.app)
    maintenance.review_alerts(home.app)
    maintenance.publish_report(home.app)


if __name__ == "__main__":
    page_alone() if sys.argv[1:] == ["--page"] else main()
