"""`receipts`: the commands, in one panel per role."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from receipt_pipeline import __version__
from receipt_pipeline.cli import admin, alerts, develop, investigations, jobs, repairs, report, serve, submit, tasks

PANELS: Mapping[str, Mapping[str, typer.Typer | Callable[..., Any]]] = {
    "Submit": {
        "submit": submit.submit,
        "status": jobs.status,
        "jobs": jobs.jobs,
        "result": jobs.result,
        "cancel": jobs.cancel,
        "retry": repairs.retry,
        "supersede": repairs.supersede,
        "classify": submit.classify,
    },
    "Review": {"tasks": tasks.app},
    "Operate": {
        "up": serve.up,
        "reconcile": report.reconcile,
        "requeue": repairs.requeue,
        "investigations": investigations.app,
        "alerts": alerts.app,
    },
    "Analyze": {"report": report.report},
    "Administer": {
        "release": admin.release_app,
        "grants": admin.grants_app,
        "submitter": admin.submitter_app,
        "import": admin.import_jobs,
        "rollback": admin.rollback,
    },
    "Develop": {"demo": serve.demo, "drill": develop.drill, "evaluate": develop.evaluate},
}


class _InPanelOrder(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in the order of the panels."""
        return [name for commands in PANELS.values() for name in commands]


app = typer.Typer(
    name="receipts",
    cls=_InPanelOrder,
    help="Read and check receipt scans, and account for every one of them.\n\n"
    "Start with `receipts demo`: it reads six sample receipts and prints what was read. "
    "Then `receipts submit SCAN --wait` reads your own. Every command has its own --help.\n\n"
    "All data is kept in one folder, the data directory: RECEIPTS_HOME, or `data` by default. "
    "README.md lists the other settings (RECEIPTS_…).",
    epilog="Exit status: 0 done, 1 bad news (a job failed, the gate fails), 2 wrong input, 3 conflict, "
    "4 not found or not allowed, 5 database, disk or server problem.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
for _panel, _commands in PANELS.items():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, rich_help_panel=_panel)
        else:
            app.command(_name, rich_help_panel=_panel)(_command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"receipts {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
