"""Files and folders of object storage as indexing looks at them: listed once, and fetched when they are read."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import total_ordering
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, cast

from resources.errors import SourceError

if TYPE_CHECKING:
    from resources.pages.places.fetched_files import FetchedFiles, Stamp


@dataclass
class _Listing:
    """What lies at or below a URL, by its place below it: each file with its URL and what the storage says of it."""

    url: str
    fetched: "FetchedFiles"
    files: "dict[str, tuple[str, Stamp]]" = field(default_factory=dict)
    folders: dict[str, set[str]] = field(default_factory=dict)

    def add(self, place: str, url: str, stamp: "Stamp") -> None:
        self.files[place] = url, stamp
        while place:
            above, _, name = place.rpartition("/")
            self.folders.setdefault(above, set()).add(name)
            place = above


@total_ordering
class ObjectPath:
    """A path of a listing: what indexing uses of `pathlib.Path`, answered without asking the storage again."""

    def __init__(self, listing: _Listing, place: str = "") -> None:
        self._listing, self._place = listing, place

    @classmethod
    def listed(cls, url: str, fetched: "FetchedFiles") -> "ObjectPath":
        """The file or folder at a URL, with all that is below it. Raises `StoreError`."""
        from resources.pages.places.fetched_files import Stamp
        from resources.store.faults import retry, translate_errors
        from resources.store.objects import Objects

        objects, root = Objects.at(url)
        listing = _Listing(url.rstrip("/"), fetched)
        try:
            with translate_errors(url, "listed"):
                found = retry(lambda: cast("dict[str, dict[str, Any]]", objects.fs.find(root, detail=True)))
        except FileNotFoundError:
            found = {}
        for name, info in found.items():
            below = name[len(root) :].lstrip("/")
            if not name.endswith("/") and name.startswith(root) and (not below or name[len(root)] == "/"):
                place = PurePosixPath(below).as_posix() if below else ""
                listing.add(place, f"{listing.url}/{below}" if below else listing.url, Stamp.of(info))
        return cls(listing)

    @property
    def name(self) -> str:
        return PurePosixPath(str(self)).name

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> "ObjectPath":
        return ObjectPath(self._listing, self._place.rpartition("/")[0])

    def is_file(self) -> bool:
        return self._place in self._listing.files

    def is_dir(self) -> bool:
        return self._place in self._listing.folders

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator["ObjectPath"]:
        for name in sorted(self._listing.folders.get(self._place, ())):
            yield self / name

    def relative_to(self, other: "ObjectPath") -> PurePosixPath:
        """Of a file that is the source itself: its name."""
        return PurePosixPath(self._place or self.name).relative_to(other._place)

    def read_bytes(self) -> bytes:
        """Raises `SourceError` and `StoreError`."""
        with self.on_disk() as path:
            return path.read_bytes()

    def open(self, mode: Literal["rb"]) -> Any:
        """The file at the storage, for a few bytes of it. Raises `FileNotFoundError`, and `StoreError`."""
        from resources.store.objects import Objects

        objects, path = Objects.at(self._file[0])
        return objects.open(path)

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """The file on this disk, as it was when it was listed. Raises `SourceError` and `StoreError`."""
        with self._listing.fetched.held(*self._file) as fetched:
            yield fetched.path

    def sha256(self) -> str:
        """The SHA-256 of the file. Raises `SourceError` and `StoreError`."""
        with self._listing.fetched.held(*self._file) as fetched:
            return fetched.sha256

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._file[1].size

    def put(self, made: Path) -> None:
        """Write the file whole from one of this disk, which is moved to what was fetched. Raises `StoreError`."""
        from resources.store.faults import retry, translate_errors
        from resources.store.objects import Objects

        objects, path = Objects.at(str(self))
        with translate_errors(str(self), "written"):
            retry(lambda: objects.fs.put_file(str(made), path))
        self._listing.add(self._place, str(self), self._listing.fetched.take(str(self), made))

    def unlink(self) -> None:
        """Remove the file. Raises `StoreError`."""
        from resources.store.objects import Objects

        objects, path = Objects.at(self._file[0])
        objects.remove(path)

    @property
    def _file(self) -> "tuple[str, Stamp]":
        try:
            return self._listing.files[self._place]
        except KeyError:
            raise SourceError(f"there is no file {self}") from None

    def __truediv__(self, name: str) -> "ObjectPath":
        return ObjectPath(self._listing, f"{self._place}/{name}".lstrip("/"))

    def __str__(self) -> str:
        known = self._listing.files.get(self._place)
        return known[0] if known else f"{self._listing.url}/{self._place}".rstrip("/")

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __lt__(self, other: object) -> bool:
        return str(self) < str(other)

    def __hash__(self) -> int:
        return hash(str(self))


SourcePath = Path | ObjectPath


def on_disk(path: SourcePath) -> AbstractContextManager[Path]:
    """The file on this disk, while the context is open. Raises `SourceError` and `StoreError` where it is fetched."""
    return nullcontext(path) if isinstance(path, Path) else path.on_disk()


def sha256_of(path: SourcePath) -> str:
    """The SHA-256 of a file. Raises `OSError`, or `SourceError` and `StoreError` where it is fetched."""
    if not isinstance(path, Path):
        return path.sha256()
    from resources.files import file_sha256

    return file_sha256(path)
