"""`receipts simulate`: seeds of a simulated house under mishaps, held against every invariant."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from receipt_pipeline.cli.answers import Exit, answering, people, print_json, remarks

SEEDS = 1_000


@answering
def simulate(
    seeds: int = typer.Option(0, "--seeds", min=0, help=f"How many seeds, {SEEDS} by default."),
    seed: int = typer.Option(-1, "--seed", min=-1, help="First seed; alone: that one, told."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> Exit:
    """Simulate the house under mishaps in virtual time. Exit status 1 when an invariant breaks."""
    from receipt_pipeline_tests.chaos.simulator.search import simulate as search
    from receipt_pipeline_tests.chaos.simulator.search import story, this_process_bench
    from receipt_pipeline_tests.chaos.simulator.seed import simulate_seed

    alone = seed >= 0 and not seeds
    first = max(seed, 0)
    if alone and not as_json:
        report = simulate_seed(this_process_bench(), first)
        sys.stdout.write(story(report))
        return Exit.BAD_NEWS if report.violations else Exit.DONE
    wanted = range(first, first + (1 if alone else seeds or SEEDS))
    found = search(wanted, progress=_progress(len(wanted)))
    document = found.as_document()
    if as_json:
        print_json(document)
    else:
        for name, value in document.items():
            people.print(f"{name}: {len(value) if isinstance(value, list) else value}")
    for broken in found.broken:
        sys.stderr.write(story(broken))
    return Exit.BAD_NEWS if found.broken else Exit.DONE


def _progress(total: int) -> Callable[[int, int], None]:
    def tell(done: int, violations: int) -> None:
        if done % 100 < 5 or done == total:
            remarks.print(f"{done} of {total} seeds, {violations} broken")

    return tell


if __name__ == "__main__":
    typer.run(simulate)
