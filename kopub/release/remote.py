"""A release on object storage, published whole by replacing one small file.

`<url>/release.json` names the folder, `<url>/versions/<digest>`, with the files of a release folder on a disk. A new
release is uploaded beside the old one, and then `release.json` is replaced by one request. The previous one is kept for
readers who have begun with it.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kopub.errors import StoreError, visible
from kopub.files import cannot_write
from kopub.parallel import bounded_map
from kopub.release.files import DATA_PATH, MANIFEST, ReleaseManifest, parse_manifest
from kopub.release.hub import local_files, release_digest
from kopub.release.local import TEXTS
from kopub.states import phrase
from kopub.store.faults import retry, translate_errors
from kopub.store.locks import ObjectLock, acquire_lock, release_lock
from kopub.store.objects import Objects

POINTER, VERSIONS = "release.json", "versions"
_LOCK = ".locks/release"
_OURS = re.compile(rf"{VERSIONS}/[0-9a-f]{{16}}/|\.locks/")
"""The files left by an upload that is killed before `release.json` names its release."""
_AT_ONCE = 8
"""Files in transfer at a time."""

Log = Callable[[str], None]


@dataclass(frozen=True)
class PublishedRelease:
    """The release at a URL as it was when opened.

    `folder` is the URL of its files.
    """

    url: str
    folder: str

    @classmethod
    def at(cls, url: str) -> "PublishedRelease":
        """Return the release that is published at a URL.

        It may also be a copy of a release folder. Raises `StoreError`.
        """
        url = url.rstrip("/")
        objects, root = Objects.at(url)
        named = _current_folder(objects, root)
        if named is None and not objects.has(f"{root}/{MANIFEST}"):
            raise StoreError("there is no release at {url}: correct the URL, or release to it", url)
        return cls(url, url if named is None else f"{url}/{named}")

    def manifest(self) -> ReleaseManifest:
        """Return the manifest of the release.

        Raises `StoreError`.
        """
        objects, root = Objects.at(self.folder)
        try:
            return parse_manifest(objects.get(f"{root}/{MANIFEST}"))
        except FileNotFoundError:
            raise StoreError("{folder} has no {file}: it is no release", self.folder, MANIFEST) from None

    def download(self, folder: Path) -> None:
        """Download all files into a folder, even those foreign to a release.

        Raises `StoreError`.
        """
        objects, root = Objects.at(self.folder)
        paths: list[str] = []
        for name in objects.below(root):
            path = name.removeprefix(f"{root}/")
            # A release copied to the URL as a folder may be published over; it then lies beside the new one.
            if _OURS.match(path) or path == POINTER:
                continue
            if ".." in path.split("/") or path.startswith("/"):
                form = "{folder} holds {name}, which is no file of a release: remove it"
                raise StoreError(form, self.folder, visible(path))
            paths.append(path)

        def get(path: str) -> None:
            try:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                with translate_errors(f"{self.folder}/{path}", "read"):
                    retry(lambda: objects.fs.get_file(f"{root}/{path}", str(folder / path)))
            except FileNotFoundError:
                # A missing file is reported by the check of the folder.
                (folder / path).unlink(missing_ok=True)
            except OSError as error:
                raise StoreError(cannot_write(folder / path, error)) from error

        for _ in bounded_map(get, paths, _AT_ONCE):
            pass


def require_ours_at(url: str) -> None:
    """Raise `StoreError` if anything other than releases lies at a URL."""
    objects, root = Objects.at(url)
    if _current_folder(objects, root) is not None or objects.has(f"{root}/{MANIFEST}"):
        return
    for path in objects.below(root):
        if not _OURS.match(path.removeprefix(f"{root}/")):
            name = visible(path.removeprefix(f"{root}/"))
            form = "{url} holds {name}, which no release wrote: name a new or empty place in release.folder"
            raise StoreError(form, url, name)


def publish_to(url: str, folder: Path, log: Log) -> str | None:
    """Publish the release of a folder, whole, at a URL.

    Returns the URL of its files, or None if it lacks shards of the corpus. Only one process of all nodes publishes at a
    time. The storage itself copies files that the release there already has. If the process is killed, the previous
    release stays. Raises `StoreError`, also if anything else lies at the URL, and `LockLost`.
    """
    require_ours_at(url)
    url, files = url.rstrip("/"), local_files(folder)
    missing = parse_manifest(files[MANIFEST].content or b"").missing
    if missing:
        form = "not published at {url}: {count} shards are not released yet, {shard} first"
        log(phrase(form, url, len(missing), missing[0]))
        return None
    objects, root = Objects.at(url)
    lock_path, holder = f"{root}/{_LOCK}", phrase("the release at {url}", url)
    lock = ObjectLock(objects, lock_path, holder)
    acquire_lock(lock_path, lock, holder, wait=True)
    try:
        before, now = _current_folder(objects, root), f"{VERSIONS}/{release_digest(files)[:16]}"
        sizes = _sizes(objects, f"{root}/{now}")
        todo = [path for path, file in files.items() if sizes.get(path) != file.size]
        hashes = _hashes(objects, f"{root}/{before}") if before and todo else {}

        def send(path: str) -> int:
            target, file = f"{root}/{now}/{path}", files[path]
            with translate_errors(target, "written"):
                if hashes.get(path) == file.sha256:
                    retry(lambda: objects.fs.cp_file(f"{root}/{before}/{path}", target))
                    return 0
                if file.content is not None:
                    objects.put(target, file.content)
                else:
                    retry(lambda: objects.fs.put_file(str(file.file), target))
            return file.size

        sent = sum(bounded_map(send, todo, _AT_ONCE))
        if before == now and not sent:
            return f"{url}/{now}"
        sizes = _sizes(objects, f"{root}/{now}")
        if wrong := [path for path, file in files.items() if sizes.get(path) != file.size]:
            form = "{root}/{version} lacks {count} files after its upload, {file} first: release again"
            raise StoreError(form, root, now, len(wrong), wrong[0])
        lock.publish(f"{root}/{POINTER}", (json.dumps({"folder": now}) + "\n").encode())
        _clear(objects, root, {now, before}, lock)
    finally:
        release_lock(lock_path)
    log(phrase("published at {url}: {count} files, {bytes:,} bytes sent", url, len(files), sent))
    return f"{url}/{now}"


def _current_folder(objects: Objects, root: str) -> str | None:
    """Return the published folder, relative to the URL."""
    try:
        return str(json.loads(objects.get(f"{root}/{POINTER}"))["folder"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise StoreError("{root}/{file} is not that of a release: remove it and release again", root, POINTER) from None


def _sizes(objects: Objects, folder: str) -> dict[str, int]:
    return {path.removeprefix(f"{folder}/"): size for path, size in objects.sizes(folder).items()}


def _hashes(objects: Objects, folder: str) -> dict[str, str]:
    """Return the SHA-256 of a published release's whole files by path."""
    try:
        listed = parse_manifest(objects.get(f"{folder}/{MANIFEST}")).files
    except (FileNotFoundError, StoreError):
        return {}
    sizes = _sizes(objects, folder)
    return {path: file.sha256 for path, file in listed.items() if sizes.get(path) == file.bytes}


def _clear(objects: Objects, root: str, keep: set[str | None], lock: ObjectLock) -> None:
    """Remove the files of other releases, and the remains of killed uploads."""
    folders = tuple(f"{root}/{name}/" for name in keep if name)
    for_removal: list[str] = []
    for path in objects.below(f"{root}/{VERSIONS}"):
        place = path.removeprefix(f"{root}/")
        rest = place[len(ours[0]) :] if (ours := _OURS.match(place)) else ""
        if (rest in TEXTS or DATA_PATH.fullmatch(rest)) and not path.startswith(folders):
            for_removal.append(path)
    # Another process that took the lock over meanwhile has other files here.
    lock.confirm()
    objects.remove_all(for_removal)
