"""One process that has everything imported, from which tests fork theirs instead of starting each anew."""

from __future__ import annotations

import multiprocessing

# A test process has one fork server, whoever asks for it: what is to be there is listed in one place.
fork_server = multiprocessing.get_context("forkserver")
fork_server.set_forkserver_preload(
    [
        "receipt_pipeline.cli.main",
        "receipt_pipeline_tests.crash.worker_process",
        "receipt_pipeline_tests.crash.intake_process",
        "receipt_pipeline_tests.chaos.many_workers",
    ]
)
