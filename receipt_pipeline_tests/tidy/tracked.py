"""The project's files as the tidy tests see them: what git knows, or will know."""

from __future__ import annotations

import ast
import functools
import subprocess
from pathlib import Path

from receipt_pipeline_tests.suite_results import PROJECT

TEXT_SUFFIXES = frozenset(
    {".py", ".md", ".toml", ".yaml", ".yml", ".sql", ".json", ".sh", ".mako", ".cfg", ".html", ""}
)


@functools.cache
def tracked_files() -> tuple[Path, ...]:
    """Return the tracked files, and the new ones that git does not ignore; all files outside a repository."""
    answer = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        return tuple(path for path in sorted(PROJECT.rglob("*")) if path.is_file() and ".venv" not in path.parts)
    paths = (PROJECT / name for name in answer.stdout.split("\0") if name)
    return tuple(sorted({path for path in paths if path.is_file()}))


def text_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix in TEXT_SUFFIXES]


def python_files(*folders: str) -> list[Path]:
    roots = [PROJECT / folder for folder in folders]
    return [
        path for path in tracked_files() if path.suffix == ".py" and any(path.is_relative_to(root) for root in roots)
    ]


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(text_of(path), filename=str(path))


def named(path: Path) -> str:
    return str(path.relative_to(PROJECT))
