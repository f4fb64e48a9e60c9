"""A home that Dagster's own resource finds opened: a real ledger and store, a clock that the test moves."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from receipt_pipeline.app import context as app_context
from receipt_pipeline.app import maintenance, submitter
from receipt_pipeline.app.context import AppContext, Chains
from receipt_pipeline.app.setup import set_up_releases
from receipt_pipeline.chain.release import shipped_releases
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.principals import Principal
from receipt_pipeline.defs import sensors
from receipt_pipeline.defs.resources import IN_MEMORY, AppResource
from receipt_pipeline.defs.waves import WAVE_TAG, classify_wave
from receipt_pipeline.ledger.engine import open_ledger
from receipt_pipeline.ledger.schema.jobs import waves
from receipt_pipeline.objects.local_store import LocalObjectStore
from receipt_pipeline.settings import read_settings
from receipt_pipeline_tests.builders import CALLER, TENANT
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain
from receipt_pipeline_tests.fakes.scripted_ocr import ScriptedOcr
from receipt_pipeline_tests.intake_home import as_bytes, job_document

IMAGE_DIGEST = digest_of("image")


@dataclass(slots=True)
class OpenedHome:
    """One home, the resource that opens it, and the chain that answers in it."""

    app: AppContext
    resource: AppResource
    clock: FakeClock
    chain: ScriptedChain = field(default_factory=ScriptedChain)

    @property
    def principal(self) -> Principal:
        return self.app.principal()

    @property
    def folder(self) -> Path:
        return self.app.settings.home

    @property
    def bench(self) -> ReconcileBench:
        """Return the bench on which tests break and mend things, over this very home."""
        return ReconcileBench.build(self.app.ledger, self.clock, self.folder)

    def submit(self, key: str, *, items: int = 1, **fields: Any) -> str:
        folder = self.folder / "handed-in" / key
        document = job_document(folder, count=items, key=key, **fields)
        path = folder / "manifest.json"
        path.write_bytes(as_bytes(document))
        (answer,) = submitter.submit(self.app, self.principal, [path])
        return str(answer["lines"][0]["job_id"])

    def tick(self, sensor: dg.SensorDefinition) -> Any:
        """Evaluate a sensor as the daemon does, without an instance: none of them asks for one."""
        return sensor.evaluate_tick(dg.build_sensor_context(sensor_name=sensor.name))

    def run_wave(self, wave_id: str, *, instance: dg.DagsterInstance | None = None) -> dg.ExecuteInProcessResult:
        """Execute the wave's Dagster job in this process; a failed step is looked at, not raised."""
        return classify_wave.execute_in_process(
            instance=instance,
            tags={WAVE_TAG: wave_id},
            resources={"app": self.resource, IN_MEMORY: dg.mem_io_manager},
            raise_on_error=False,
        )

    def dispatch(self) -> list[str]:
        return [wave.wave_id for wave in maintenance.dispatch_jobs(self.app).to_launch]

    def waves(self) -> list[dict[str, Any]]:
        with self.app.ledger.reading() as tx:
            return tx.rows(waves.select().order_by(waves.c.created_at, waves.c.wave_id))

    def job(self, job_id: str) -> dict[str, Any]:
        return self.bench.bench.job(job_id)


def open_home(
    folder: Path,
    template: Path,
    clock: FakeClock,
    patch: pytest.MonkeyPatch,
    environment: Mapping[str, str] | None = None,
) -> OpenedHome:
    """Open a home on a copy of a migrated ledger and put it where the resource looks for opened homes.

    Everything is as `new_context` builds it, but for the clock and for the chain: every release is
    answered by one ScriptedChain, and no reader's models are loaded.
    """
    named = {
        "RECEIPTS_HOME": str(folder),
        "RECEIPTS_TENANT": TENANT,
        "RECEIPTS_CALLER": CALLER,
        "RECEIPTS_IMAGE_DIGEST": IMAGE_DIGEST,
        **(environment or {}),
    }
    for name, value in named.items():  # Sensors read the environment of their process.
        patch.setenv(name, value)
    patch.setattr(sensors, "DISPATCH_WAIT_S", 0.0)
    settings = read_settings(named)
    for place in (settings.inbox / TENANT / "loose", settings.outbox / TENANT):
        place.mkdir(parents=True)
    shutil.copyfile(template, folder / "ledger.db")
    chains = Chains(settings, IMAGE_DIGEST, engine=ScriptedOcr())
    services = AppContext(
        settings=settings,
        ledger=open_ledger(settings.ledger_url, clock=clock),
        store=LocalObjectStore(settings.objects),
        image_digest=IMAGE_DIGEST,
        chains=chains,
    )
    shipped = shipped_releases(settings.shipped, image_digest=IMAGE_DIGEST)
    set_up_releases(services.ledger, shipped)
    opened = OpenedHome(services, AppResource(environment=named), clock)
    chains.loaded.update({template.release.pins(): opened.chain for template in shipped})
    patch.setitem(app_context._opened, (str(settings.home), settings.ledger_url), services)
    assert opened.resource.open() is services
    return opened
