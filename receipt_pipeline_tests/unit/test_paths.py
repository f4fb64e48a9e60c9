"""Paths of a submission: confined by their text, and again while they are opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.intake.scans import confined_parts, open_confined


def refusal_of(folder: Path, uri: str) -> tuple[str, str, dict[str, object]]:
    with pytest.raises(InputRefused) as caught:
        os.close(open_confined(folder, uri, pointer="/items/0/uri"))
    return caught.value.reason.code, caught.value.pointer, dict(caught.value.facts)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "inbox"
    (inside / "sub").mkdir(parents=True)
    (inside / "a.png").write_bytes(b"inside")
    (inside / "sub/b.png").write_bytes(b"below")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.png").write_bytes(b"secret")
    (inside / "link.png").symlink_to("../outside/secret.png")
    (inside / "dangling.png").symlink_to("../outside/nothing.png")
    (inside / "own.png").symlink_to("a.png")
    (inside / "door").symlink_to("../outside")
    return inside


@pytest.mark.parametrize("uri", ["a.png", "./a.png", "sub/b.png", "sub/./b.png"])
def test_what_lies_in_the_folder_is_opened(folder: Path, uri: str) -> None:
    handle = open_confined(folder, uri, pointer="")
    assert os.read(handle, 100) in (b"inside", b"below")
    os.close(handle)


def test_every_way_out_gets_one_answer_whether_or_not_something_is_there(folder: Path, tmp_path: Path) -> None:
    ways = ["../outside/secret.png", "../outside/nothing.png", "sub/../../outside/secret.png", "..", "."]
    ways += [str(tmp_path / "outside/secret.png"), "/nothing", "file:///etc/passwd", "C:\\scans\\a.png", "c:/a.png"]
    ways += ["..\\outside\\secret.png", "sub\\b.png", "sub//b.png", "", "link.png", "dangling.png", "own.png"]
    ways += ["door/secret.png", "door/nothing.png", "a\0b", "x/" * 30 + "a.png"]
    answers = {uri: refusal_of(folder, uri) for uri in ways}
    assert set(map(repr, answers.values())) == {repr(("PATH.OUTSIDE.v1", "/items/0/uri", {}))}


def test_a_name_that_only_looks_odd_is_taken_as_it_is(folder: Path) -> None:
    for name in ("..a.png", "a..png", "Beleg 7 (März).png", "a b.png", "-rf.png"):
        (folder / name).write_bytes(b"x")
        assert confined_parts(name, pointer="") == (name,)
        os.close(open_confined(folder, name, pointer=""))


def test_missing_and_unreadable_scans_are_told_apart(folder: Path) -> None:
    os.mkfifo(folder / "pipe.png")
    assert refusal_of(folder, "nothing.png")[0] == "SCAN.MISSING.v1"
    assert refusal_of(folder, "nowhere/a.png")[0] == "SCAN.MISSING.v1"
    assert refusal_of(folder, "a.png/b.png")[0] == "SCAN.MISSING.v1"
    assert refusal_of(folder / "nowhere", "a.png")[0] == "SCAN.MISSING.v1"
    for no_file in ("sub", "pipe.png"):
        assert refusal_of(folder, no_file)[0] == "SCAN.UNREADABLE.v1"


def test_a_scan_without_permission_is_unreadable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refused(path: object, flags: int, *given: object, **named: object) -> int:
        if path == "a.png":
            raise PermissionError(13, "no")
        return opened(path, flags, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refused)
    assert refusal_of(folder, "a.png")[::2] == ("SCAN.UNREADABLE.v1", {"cause": "EACCES"})


def test_a_folder_exchanged_for_a_link_after_the_check_leads_nowhere(folder: Path, tmp_path: Path) -> None:
    assert confined_parts("sub/b.png", pointer="") == ("sub", "b.png")
    (folder / "sub").rename(folder / "gone")
    (tmp_path / "outside/b.png").write_bytes(b"secret")
    (folder / "sub").symlink_to("../outside")
    assert refusal_of(folder, "sub/b.png")[0] == "PATH.OUTSIDE.v1"
