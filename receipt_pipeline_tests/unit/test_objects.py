"""Objects: durable, put if absent, verified, and confined to their folder."""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import os
import re
from pathlib import Path

import pytest

from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.objects import local_store
from receipt_pipeline.objects.local_store import LocalObjectStore
from receipt_pipeline.objects.store import ObjectStore, PutKind, checked_key, result_key, scan_key

KEY = "results/job_1/1-" + "a" * 64


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> LocalObjectStore:
    return LocalObjectStore(tmp_path / "objects")


def files_of(store: LocalObjectStore) -> set[str]:
    return {str(path.relative_to(store.root)) for path in store.root.rglob("*") if path.is_file()}


def test_bytes_are_read_back_as_they_were_put(store: LocalObjectStore) -> None:
    kept: ObjectStore = store
    outcome = kept.put(KEY, b"result")
    assert (outcome.kind, outcome.digest, outcome.size_bytes) == (PutKind.STORED, digest_of(b"result"), 6)
    assert (kept.read(KEY), kept.digest(KEY)) == (b"result", (digest_of(b"result"), 6))
    found = kept.stat(KEY)
    assert found is not None
    assert (found.size_bytes, found.modified_at.tzinfo) == (6, dt.UTC)


def test_putting_the_same_bytes_again_changes_nothing(store: LocalObjectStore) -> None:
    store.put(KEY, b"result")
    inode = (store.root / KEY).stat().st_ino
    assert store.put(KEY, b"result").kind is PutKind.PRESENT
    assert (store.root / KEY).stat().st_ino == inode
    assert files_of(store) == {KEY}


def test_other_bytes_under_a_key_are_set_aside_and_the_right_ones_written(store: LocalObjectStore) -> None:
    store.put(KEY, b"foreign")
    outcome = store.put(KEY, b"result")
    aside = f"set-aside/{KEY}/{hashlib.sha256(b'foreign').hexdigest()}"
    assert (outcome.kind, outcome.set_aside) == (PutKind.STORED, aside)
    assert (store.read(KEY), store.read(aside)) == (b"result", b"foreign")
    assert [entry.key for entry in store.listing()] == [KEY]
    assert [entry.key for entry in store.listing("set-aside/")] == [aside]


def test_a_key_that_never_comes_free_is_a_failed_upload_and_no_endless_loop(
    store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(KEY, b"foreign")
    monkeypatch.setattr(local_store, "_link_new", lambda temp, path: False)
    with pytest.raises(ObjectFault, match=re.escape("UPLOAD.FAILED.v1")):
        store.put(KEY, b"result")


def test_a_stream_with_another_digest_leaves_nothing(store: LocalObjectStore) -> None:
    outcome = store.copy_in(KEY, iter([b"ab", b"c"]), expected_digest=digest_of(b"abd"))
    assert (outcome.put, outcome.digest, outcome.size_bytes) == (None, digest_of(b"abc"), 3)
    assert files_of(store) == set()


def test_a_stream_that_breaks_off_leaves_nothing(store: LocalObjectStore) -> None:
    def broken():  # type: ignore[no-untyped-def]
        yield b"ab"
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        store.copy_in(KEY, broken(), expected_digest=digest_of(b"abc"))
    assert files_of(store) == set()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_so_and_nothing_half_written_stays(
    store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(handle: int, chunk: bytes) -> None:
        os.write(handle, chunk[:1])
        raise OSError(number, "no room")

    monkeypatch.setattr(local_store, "_write_all", full)
    with pytest.raises(ObjectFault) as caught:
        store.put(KEY, b"result")
    assert caught.value.reason.code == "STORAGE.FULL.v1"
    assert files_of(store) == set()


def test_another_write_error_is_a_failed_upload(store: LocalObjectStore, tmp_path: Path) -> None:
    (tmp_path / "objects").write_bytes(b"a file where the folder should be")
    with pytest.raises(ObjectFault, match=re.escape("UPLOAD.FAILED.v1")):
        store.put(KEY, b"result")


def test_what_is_missing_is_none_or_a_named_fault(store: LocalObjectStore) -> None:
    assert (store.stat(KEY), store.digest(KEY), store.delete(KEY)) == (None, None, False)
    assert list(store.listing()) == []
    with pytest.raises(ObjectFault, match=re.escape("RESULT.MISSING.v1")):
        store.read(KEY)


def test_what_cannot_be_read_is_not_taken_for_missing(store: LocalObjectStore) -> None:
    (store.root / KEY).parent.mkdir(parents=True)
    (store.root / KEY).symlink_to(KEY)
    for look in (store.read, store.digest):
        with pytest.raises(ObjectFault, match=re.escape("OBJECT.UNREADABLE.v1")):
            look(KEY)


def test_where_the_file_system_knows_no_links_a_rename_does(
    store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(source: object, target: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    assert store.put(KEY, b"result").kind is PutKind.STORED
    assert store.put(KEY, b"result").kind is PutKind.PRESENT
    assert store.read(KEY) == b"result"


def test_listings_are_ordered_and_leave_temporary_files_out(store: LocalObjectStore) -> None:
    keys = [scan_key("local", f"{number:064x}") for number in (2, 1)] + [result_key("job_1", 1, "b" * 64)]
    for key in keys:
        store.put(key, b"x")
    (store.root / "scans/local/.tmp-left").write_bytes(b"half")
    assert [entry.key for entry in store.listing()] == sorted(keys)
    assert [entry.size_bytes for entry in store.listing("scans/local/")] == [1, 1]


def test_leftovers_of_a_killed_process_are_removed_once_they_are_old(store: LocalObjectStore) -> None:
    store.put(KEY, b"result")
    (store.root / "results/.tmp-left").write_bytes(b"half")
    now = dt.datetime.now(dt.UTC)
    assert store.remove_leftovers(before=now - dt.timedelta(hours=1)) == 0
    assert store.remove_leftovers(before=now + dt.timedelta(hours=1)) == 1
    assert files_of(store) == {KEY}


def test_deleting_an_object_removes_only_that(store: LocalObjectStore) -> None:
    other = scan_key("local", "c" * 64)
    store.put(KEY, b"result")
    store.put(other, b"scan")
    assert store.delete(KEY) is True
    assert files_of(store) == {other}


@pytest.mark.parametrize("key", ["../secret", "/etc/passwd", "scans/../../secret", "scans/.tmp-1", "scans//a", ""])
def test_no_key_leads_out_of_the_folder(store: LocalObjectStore, key: str) -> None:
    for use in (store.read, store.digest, store.stat, store.delete, checked_key):
        with pytest.raises(ValueError, match="not an object key"):
            use(key)
    with pytest.raises(ValueError, match="prefix"):
        list(store.listing("../"))
