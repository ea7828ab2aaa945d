# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Where dumps lie: a folder of this machine, or any URL that fsspec opens."""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from sok.checkpoint import files, locks

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class Storage(Protocol):
    """Files under one place. Names are relative, with "/" between folder and file."""

    place: str
    # As it was given: equal on all ranks, where `place` may differ by each one's working directory.
    given: str

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Keeps other processes from dumping here meanwhile, where that can be done.

        Raises:
            OSError: one is doing it; or there can be no folder here.
        """
        ...

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Makes a file; when this returns its bytes are there to stay, its name after `sync`."""
        ...

    def sync(self, folder: str) -> None:
        """The files that were written into a folder are there to stay."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Makes a file that may exist, to stay; at every moment it is the old one or the new one. Files that
        were written before it, and folders that were synced, are on the disk before it is."""
        ...

    def read(self, name: str, most: int) -> bytes | None:
        """A small file, or None if there is none.

        Raises:
            ValueError: it has more than `most` bytes.
        """
        ...

    def files(self, folder: str) -> int:
        """How many files a folder has."""
        ...

    def folders(self) -> list[str]: ...

    def check(self, name: str, size: int) -> None:
        """Raises ValueError unless the file is there, with this many bytes."""
        ...

    def remove(self, folder: str) -> None:
        """Removes a folder, unless somebody reads it, as far as that can be known."""
        ...

    @contextlib.contextmanager
    def local(self, names: dict[str, int]) -> Iterator[dict[str, Path]]:
        """Files as files of this machine, by name; `names` gives the size each must have.

        Raises:
            ValueError: a file is missing or has another size.
        """
        ...


def wrong_size(place: str, name: str, found: int, wanted: int) -> ValueError:
    return ValueError(f"{place}: {name} has {found} bytes, the manifest says {wanted}: it was cut or changed")


def _missing(place: str, name: str) -> ValueError:
    return ValueError(
        f"{place}: {name} is missing: it was removed, or a newer dump has just taken this one's place; then load again"
    )


class LocalStorage:
    """See Storage."""

    def __init__(self, path: str):
        # One name, however it was spelled: dumps to one place wait for each other.
        self.place = os.path.realpath(path)
        self.given = os.path.normpath(path)
        self._root = Path(self.place)
        if self._root.exists() and not self._root.is_dir():
            raise NotADirectoryError(f"{path} is a file; a dump is a folder")

    @contextlib.contextmanager
    def alone(self):
        self._root.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locks.held(self._root))
            except BlockingIOError:
                raise BlockingIOError(
                    f"{self.place}: another process is writing a dump there. Wait for it, or give each a folder of its "
                    "own; the ranks of one job must call sok.init() first"
                ) from None
            yield

    def write(self, name, data):
        files.write(self._root / name, data)

    def sync(self, folder):
        if (self._root / folder).is_dir():
            files.sync(self._root / folder)

    def replace(self, name, data):
        path = self._root / name
        new = path.with_name(f".{path.name}.new")
        new.unlink(missing_ok=True)  # whatever it is: a pipe would be waited for
        files.write(new, data)
        # The names of what the new file speaks of must be on the disk before it is.
        files.sync(path.parent)
        os.replace(new, path)
        files.sync(path.parent)

    def read(self, name, most):
        path = self._root / name
        try:
            size = files.size(path)
        except (FileNotFoundError, NotADirectoryError):
            if path.is_symlink():
                raise ValueError(
                    f"{path} is a symbolic link that leads nowhere: put the file of the dump back in its place"
                ) from None
            return None
        if size > most:
            raise ValueError(f"{path} has {size} bytes, at most {most} are read")
        with files.opened(path) as (descriptor, size):
            return bytes(files.read_at(descriptor, 0, min(size, most)))

    def files(self, folder):
        try:
            return len(os.listdir(self._root / folder))
        except FileNotFoundError:
            return 0

    def folders(self):
        return [entry.name for entry in self._root.iterdir() if entry.is_dir()] if self._root.is_dir() else []

    def remove(self, folder):
        with contextlib.suppress(OSError), locks.held(self._root / folder):
            shutil.rmtree(self._root / folder, ignore_errors=True)

    def check(self, name, size):
        try:
            found = files.size(self._root / name)
        except (FileNotFoundError, NotADirectoryError):
            raise _missing(self.place, name) from None
        if found != size:
            raise wrong_size(self.place, name, found, size)

    @contextlib.contextmanager
    def local(self, names):
        with contextlib.ExitStack() as stack:
            # Until they have been read a dump that takes this one's place leaves them.
            for folder in {name.rpartition("/")[0] for name in names}:
                try:
                    stack.enter_context(locks.held(self._root / folder, shared=True))
                except BlockingIOError:
                    # It is being removed: files that are there still would go while they are read.
                    raise _missing(self.place, folder) from None
                except OSError:
                    pass  # gone, as the files will say; or not to be locked by this process, but to be read
            for name, size in names.items():
                self.check(name, size)
            yield {name: self._root / name for name in names}


# Where an object appears as a whole, and nobody makes folders.
_OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oci", "oss", "obs", "cos")
# File systems where a file shows while it is being written, and whose `mv` puts one in another's place in one
# step.
_RENAMING = ("file", "local", "sftp", "ssh")


class FsspecStorage:
    """See Storage. `replace` keeps its promise on object stores and on the file systems of `_RENAMING`.
    Elsewhere (HDFS, FTP, SMB and others) it writes over the old file: who reads meanwhile, or after a crash in
    that moment, may find half of it.

    Errors of the store become OSErrors that name the place.
    """

    def __init__(self, url: str, options: dict[str, Any] | None):
        import fsspec  # not everybody needs it

        self.place = self.given = url.rstrip("/")
        # Listings that were cached would hide what other ranks write.
        options = {"use_listings_cache": False, "skip_instance_cache": True, **(options or {})}
        try:
            self._system, self._root = fsspec.core.url_to_fs(url, **options)
        except (ImportError, ValueError) as error:
            raise ValueError(f"{url}: fsspec cannot open it: {error}") from error
        self._root = self._root.rstrip("/")
        protocol = self._system.protocol
        names = {protocol} if isinstance(protocol, str) else set(protocol)
        self._has_folders = names.isdisjoint(_OBJECT_STORES)
        self._renames = not names.isdisjoint(_RENAMING)

    def alone(self):
        return contextlib.nullcontext()

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextlib.contextmanager
    def _naming(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each store raises its own kinds
            # HTTP says "not found" of a server that it does not reach too.
            reason = error.__cause__
            unreached = isinstance(reason, OSError) and not isinstance(reason, FileNotFoundError)
            if isinstance(error, FileNotFoundError) and not unreached:
                raise
            shown = reason if unreached else error
            raise OSError(f"{self.place}: cannot {action} {name}: {type(shown).__name__}: {shown}") from error

    def write(self, name, data):
        with self._naming("write", name):
            if self._has_folders:
                self._system.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)
            self._system.pipe_file(self._path(name), bytes(data))

    def sync(self, folder):
        pass  # a store that has answered has it

    def replace(self, name, data):
        if not self._renames:
            return self.write(name, data)
        self.write(f"{name}.new", data)
        with self._naming("rename", name):
            self._system.mv(self._path(f"{name}.new"), self._path(name))

    def read(self, name, most):
        try:
            with self._naming("read", name):
                self._system.invalidate_cache()
                size = self._system.size(self._path(name))
                if size <= most:
                    return self._system.cat_file(self._path(name))
        except FileNotFoundError:
            return None
        raise ValueError(f"{self.place}: {name} has {size} bytes, at most {most} are read")

    def files(self, folder):
        try:
            with self._naming("list", folder):
                self._system.invalidate_cache()
                return len(self._system.ls(self._path(folder), detail=False))
        except FileNotFoundError:
            return 0

    def folders(self):
        try:
            with self._naming("list", "its folders"):
                self._system.invalidate_cache()
                entries = self._system.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        return [e["name"].rstrip("/").rsplit("/", 1)[-1] for e in entries if e["type"] == "directory"]

    def check(self, name, size):
        try:
            with self._naming("find", name):
                self._system.invalidate_cache()
                found = self._system.size(self._path(name))
        except FileNotFoundError:
            raise _missing(self.place, name) from None
        if found != size:
            raise wrong_size(self.place, name, found, size)

    def remove(self, folder):
        with contextlib.suppress(FileNotFoundError), self._naming("remove", folder):
            self._system.rm(self._path(folder), recursive=True)

    @contextlib.contextmanager
    def local(self, names):
        with tempfile.TemporaryDirectory(prefix="sok-dump-") as folder:
            paths = {}
            for number, (name, size) in enumerate(names.items()):
                path = paths[name] = Path(folder) / str(number)
                try:
                    with self._naming("read", name):
                        self._system.invalidate_cache()
                        found = self._system.size(self._path(name))
                        if found == size:
                            self._system.get_file(self._path(name), str(path))
                            found = path.stat().st_size
                except FileNotFoundError:
                    raise _missing(self.place, name) from None
                if found != size:
                    raise wrong_size(self.place, name, found, size)
            yield paths


def path_name(path: Any) -> str:
    """A path or URL as a string.

    Raises:
        TypeError: it is neither a string nor a Path.
        ValueError: it is no name.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise TypeError(f"path must be a folder or a URL, as a string or a Path, got {path!r:.120}")
    try:
        is_name = text != "" and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise ValueError(f"path must be the name of a folder or a URL, got {path!r:.120}")
    return text


def open_storage(path: Any, options: dict[str, Any] | None = None) -> Storage:
    """The storage of a path or URL.

    Args:
        options: for fsspec, as `fsspec.filesystem` takes them.

    Raises:
        TypeError: the path is neither a string nor a Path, or the options are no dict.
        ValueError: it is no name; or no library for such a URL is installed.
        NotADirectoryError: the path is a file.
    """
    text = path_name(path)
    if options is not None and not (isinstance(options, dict) and all(isinstance(name, str) for name in options)):
        raise TypeError(f"storage_options must be a dict for fsspec, or None, got {options!r:.120}")
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    return FsspecStorage(text, options) if _URL.match(text) else LocalStorage(text)
