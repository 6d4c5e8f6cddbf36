"""What separates a release folder from a repository, and how it is sent: whole shards, in few commits. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resources.errors import StoreError
from resources.release.dataset import checksums, release_manifest
from resources.release.dataset.release_manifest import DATA, Manifest
from resources.release.local import TEXTS

FILES_PER_COMMIT = 1000
"""As many as the Hub's own client puts into one commit; a shard has eight."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of the folder; `content` of the ones that describe it, `file` of the others."""

    path: str
    sha256: str
    size: int
    rows: int | None
    file: Path
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of the repository. Its `sha256` where it lies in large file storage, else the hash of its git blob."""

    path: str
    size: int
    sha256: str | None
    git_blob: str


@dataclass(frozen=True, slots=True)
class Change:
    """A file that is added, changed or removed: size and rows are those it will have, or had; None when unknown."""

    path: str
    size: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class Difference:
    """What a repository lacks, has otherwise and has too much, in the order of the paths."""

    added: Sequence[Change] = field(default_factory=list)
    changed: Sequence[Change] = field(default_factory=list)
    removed: Sequence[Change] = field(default_factory=list)

    @property
    def files(self) -> int:
        return len(self.added) + len(self.changed) + len(self.removed)

    @property
    def bytes(self) -> int:
        """To be sent at most; large file storage takes only what it has not."""
        return sum(change.size for change in (*self.added, *self.changed))

    def lines(self) -> Iterator[str]:
        """For a person: each file, then the sums."""
        kinds = (("+", "added", self.added), ("~", "changed", self.changed), ("-", "removed", self.removed))
        for sign, _, changes in kinds:
            for change in changes:
                rows = "" if change.rows is None else f", {change.rows:,} rows"
                yield f"{sign} {change.path} ({change.size:,} bytes{rows})"
        for _, name, changes in kinds:
            rows = sum(change.rows or 0 for change in changes)
            size = sum(change.size for change in changes)
            yield f"{len(changes)} files {name}: {size:,} bytes, {rows:,} rows"


def local_files(folder: Path) -> dict[str, LocalFile]:
    """The files of a release by path, as its lists have them. Raises `StoreError` when the lists do not agree."""
    texts = {name: _read(folder, name) for name in TEXTS}
    known, listed = (
        checksums.of_data(checksums.parse(texts[checksums.NAME].decode())),
        release_manifest.parse(texts[release_manifest.NAME]),
    )
    if known != {path: file.sha256 for path, file in listed.files.items()}:
        raise StoreError(f"{folder} is being written by another run, or one was killed: materialize hf_release again")
    data = {
        path: LocalFile(path, file.sha256, file.bytes, file.rows, folder / path) for path, file in listed.files.items()
    }
    described = {
        name: LocalFile(name, checksums.of_bytes(content), len(content), None, folder / name, content)
        for name, content in texts.items()
    }
    return data | described


def difference(
    local: Mapping[str, LocalFile], remote: Mapping[str, RemoteFile], before: Manifest | None = None
) -> Difference:
    """What has to change in `remote` to be `local`; `before` is its manifest, which knows the rows of what goes.

    Files that no release writes are left alone.
    """
    rows = {path: file.rows for path, file in before.files.items()} if before else {}
    gone = (path for path in sorted(remote) if path not in local and DATA.fullmatch(path))
    return Difference(
        added=[_change(local[path]) for path in sorted(local) if path not in remote],
        changed=[
            _change(local[path]) for path in sorted(local) if path in remote and not same(local[path], remote[path])
        ],
        removed=[Change(path, remote[path].size, rows.get(path)) for path in gone],
    )


def same(local: LocalFile, remote: RemoteFile) -> bool:
    """Whether both hold the same bytes, by their hashes."""
    if local.size != remote.size:
        return False
    if remote.sha256 is not None:
        return local.sha256 == remote.sha256
    content = local.file.read_bytes() if local.content is None else local.content
    return checksums.git_blob(content) == remote.git_blob


def commits(found: Difference) -> list[tuple[list[str], list[str]]]:
    """The paths to send and to remove in each commit.

    A shard is never divided between two. What describes the release is in the last one, with all
    that is removed: until then the repository describes what it had.
    """
    sent = [change.path for change in (*found.added, *found.changed)]
    removed = [change.path for change in found.removed]
    by_shard: dict[str, list[str]] = {}
    last = [path for path in sent if not DATA.fullmatch(path)]
    for path in sorted(sent):
        if match := DATA.fullmatch(path):
            by_shard.setdefault(match["shard"], []).append(path)
    groups: list[list[str]] = [[]]
    for paths in by_shard.values():
        if groups[-1] and len(groups[-1]) + len(paths) > FILES_PER_COMMIT:
            groups.append([])
        groups[-1] += paths
    if len(groups[-1]) + len(last) + len(removed) > FILES_PER_COMMIT and groups[-1]:
        groups.append([])
    return [(group, []) for group in groups[:-1]] + [([*groups[-1], *last], removed)]


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError:
        raise StoreError(f"{folder} has no {name}: materialize hf_release first") from None


def _change(file: LocalFile) -> Change:
    return Change(file.path, file.size, file.rows)
