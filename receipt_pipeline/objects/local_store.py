"""Objects as durable plain files: temporary file, fsync, link without overwriting, fsync of the folder."""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from receipt_pipeline.core.errors import ObjectFault, cause_of, is_out_of_space
from receipt_pipeline.core.reasons import OBJECT_UNREADABLE, RESULT_MISSING, STORAGE_FULL, UPLOAD_FAILED
from receipt_pipeline.durable_files import make_folders, sync_path
from receipt_pipeline.objects.store import (
    RESULTS_PREFIX,
    SCANS_PREFIX,
    CopyOutcome,
    ObjectEntry,
    ObjectStat,
    PutKind,
    PutOutcome,
    checked_key,
    checked_prefix,
    set_aside_key,
)

READ_CHUNK_BYTES = 1 << 20
PUT_ATTEMPTS_MAX = 2
TEMP_PREFIX = ".tmp-"
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class LocalObjectStore:
    """An object store in a local folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._root = str(root)

    def put(self, key: str, data: bytes) -> PutOutcome:
        """Store bytes durably unless they are there; other bytes under the key are set aside."""
        checked_key(key)
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        if self.digest(key) == (digest, len(data)):
            with _writing(key):
                sync_path(self._path(key).parent)
            return PutOutcome(PutKind.PRESENT, digest, len(data))
        outcome = self.copy_in(key, (data,), expected_digest=digest)
        assert outcome.put is not None
        return outcome.put

    def copy_in(self, key: str, chunks: Iterable[bytes], *, expected_digest: str) -> CopyOutcome:
        """Store a stream durably, but only when it hashes to the full digest expected.

        Errors of the stream pass through; no partial file remains.
        """
        path = self._path(key)
        temp = path.parent / f"{TEMP_PREFIX}{uuid.uuid4().hex}"
        try:
            with _writing(key):
                make_folders(path.parent)
            digest, size_bytes = _write_temp(temp, chunks, key=key)
            if digest != expected_digest:
                return CopyOutcome(digest, size_bytes, None)
            with _writing(key):
                return CopyOutcome(digest, size_bytes, self._publish(key, temp, digest, size_bytes))
        finally:
            with suppress(OSError):
                temp.unlink(missing_ok=True)

    def read(self, key: str) -> bytes:
        """Return the bytes. Raises ObjectFault RESULT.MISSING.v1 when there are none."""
        try:
            with open(os.open(self._address(key), _READ_FLAGS), "rb") as file:
                return file.read()
        except FileNotFoundError as error:
            raise ObjectFault(RESULT_MISSING, key=key) from error
        except OSError as error:
            raise _unreadable(key, error) from error

    def stat(self, key: str) -> ObjectStat | None:
        """Return size and time of change, None when there is no such object."""
        try:
            found = os.stat(self._address(key), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(key, error) from error
        return ObjectStat(found.st_size, _aware(found.st_mtime))

    def digest(self, key: str) -> tuple[str, int] | None:
        """Return full digest and size of the stored bytes, None when there is no such object."""
        try:
            handle = os.open(self._address(key), _READ_FLAGS)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(key, error) from error
        try:
            hashed, size_bytes = hashlib.sha256(), 0
            while chunk := os.read(handle, READ_CHUNK_BYTES):
                hashed.update(chunk)
                size_bytes += len(chunk)
        except OSError as error:
            raise _unreadable(key, error) from error
        finally:
            os.close(handle)
        return "sha256:" + hashed.hexdigest(), size_bytes

    def listing(self, prefix: str = "") -> Iterator[ObjectEntry]:
        """Yield the objects whose keys begin with a folder-like prefix, ordered by key.

        Objects set aside are listed only under their prefix; temporary files never are.
        """
        checked_prefix(prefix)
        tops = (prefix,) if prefix else (RESULTS_PREFIX, SCANS_PREFIX)
        for top in tops:
            yield from self._walk(top.rstrip("/"))

    def delete(self, key: str) -> bool:
        """Remove an object durably; False when there was none."""
        path = self._path(key)
        with _writing(key):
            try:
                path.unlink()
            except FileNotFoundError:
                return False
            sync_path(path.parent)
        return True

    def remove_leftovers(self, *, before: dt.datetime) -> int:
        """Remove temporary files that a killed process left and that are older than `before`."""
        removed = 0
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = Path(folder, name)
                with suppress(FileNotFoundError):
                    if name.startswith(TEMP_PREFIX) and _aware(path.stat().st_mtime) < before:
                        path.unlink()
                        removed += 1
        return removed

    def _publish(self, key: str, temp: Path, digest: str, size_bytes: int) -> PutOutcome:
        """Give the temp file its key; an object that is already there is moved if it differs."""
        path, set_aside = self._path(key), None
        for _ in range(PUT_ATTEMPTS_MAX):
            if _link_new(temp, path):
                sync_path(path.parent)
                return PutOutcome(PutKind.STORED, digest, size_bytes, set_aside)
            found = self.digest(key)
            if found == (digest, size_bytes):
                sync_path(path.parent)
                return PutOutcome(PutKind.PRESENT, digest, size_bytes, set_aside)
            if found is not None:
                set_aside = self._set_aside(key, found[0])
        raise ObjectFault(UPLOAD_FAILED, key=key, set_aside=set_aside)

    def _set_aside(self, key: str, digest: str) -> str:
        aside = set_aside_key(key, digest)
        path = self._path(aside)
        make_folders(path.parent)
        os.replace(self._path(key), path)
        sync_path(path.parent)
        return aside

    def _walk(self, folder_key: str) -> Iterator[ObjectEntry]:
        try:
            with os.scandir(f"{self._root}/{folder_key}") as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _unreadable(folder_key, error) from error
        for entry in entries:
            key = f"{folder_key}/{entry.name}"
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(key)
                continue
            with suppress(FileNotFoundError):  # Deleted since the folder was read.
                status = entry.stat(follow_symlinks=False)
                yield ObjectEntry(key, status.st_size, _aware(status.st_mtime))

    def _address(self, key: str) -> str:
        return f"{self._root}/{checked_key(key)}"

    def _path(self, key: str) -> Path:
        return Path(self._address(key))


def _write_temp(temp: Path, chunks: Iterable[bytes], *, key: str) -> tuple[str, int]:
    """Write a stream to a new file and fsync it; returns its full digest and size."""
    hashed, size_bytes = hashlib.sha256(), 0
    with _writing(key):
        handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
    try:
        # The stream's own errors are not errors of this store, so only the writes are translated.
        for chunk in chunks:
            hashed.update(chunk)
            size_bytes += len(chunk)
            with _writing(key):
                _write_all(handle, chunk)
        with _writing(key):
            os.fsync(handle)
    finally:
        os.close(handle)
    return "sha256:" + hashed.hexdigest(), size_bytes


def _write_all(handle: int, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _link_new(temp: Path, path: Path) -> bool:
    """Give the file its final name unless one exists; False when one does."""
    try:
        os.link(temp, path)
    except FileExistsError:
        return False
    except OSError as error:
        # Some file systems have no links. Keys are content addresses, so a lost race loses nothing.
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            return False
        os.rename(temp, path)
    return True


@contextmanager
def _writing(key: str) -> Iterator[None]:
    """Translate errors of the file system while writing."""
    try:
        yield
    except OSError as error:
        reason = STORAGE_FULL if is_out_of_space(error) else UPLOAD_FAILED
        raise ObjectFault(reason, key=key, cause=cause_of(error)) from error


def _unreadable(key: str, error: OSError) -> ObjectFault:
    return ObjectFault(OBJECT_UNREADABLE, key=key, cause=cause_of(error))


def _aware(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
