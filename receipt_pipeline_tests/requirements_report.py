"""Counts the requirements that passing tests carry, from the result file of a whole run."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from receipt_pipeline_tests.suite_results import PROJECT, tree_state

REQUIREMENTS_TEXT = PROJECT / "docs" / "requirements.md"


def known_ids(text: str) -> list[str]:
    return re.findall(r"^- \*\*(R\d{3})\*\*", text, flags=re.MULTILINE)


def carried_ids(document: dict[str, Any]) -> set[str]:
    """Return the ids with at least one passing test; a skipped or failed test carries nothing."""
    return {name for test in document["tests"].values() if test["outcome"] == "passed" for name in test["requirements"]}


def reusable(document: dict[str, Any], *, shared: Path) -> bool:
    """Tell whether the file is of a passed suite on exactly the tree that is checked out now."""
    now = tree_state(shared)
    tested = (document["commit"], document["clean"], document["shared"])
    return document["exit_status"] == 0 and now.clean and tested == (now.commit, True, now.shared)


def main(arguments: list[str]) -> int:
    """Print `N of 160` and the ids that no passing test carries; 1 when the suite did not pass.

    With `--reusable`, print nothing and answer 0 only where the file may be used again.
    """
    results = Path(arguments[-1])
    document = json.loads(results.read_text()) if results.exists() else None
    if arguments[0] == "--reusable":
        return 0 if document and reusable(document, shared=PROJECT.parent / "shared") else 1
    if document is None:
        print("no result file: the suite did not run to its end; run `make test` and read its output")
        return 1
    known = known_ids(REQUIREMENTS_TEXT.read_text())
    carried = carried_ids(document)
    missing = [name for name in known if name not in carried]
    print(f"{len(known) - len(missing)} of {len(known)}")
    if missing:
        print("carried by no passing test: " + " ".join(missing))
    if document["exit_status"] != 0:
        print("the suite did not pass; failed and skipped tests carry nothing")
    return 0 if document["exit_status"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
