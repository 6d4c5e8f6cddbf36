"""Pushes a release to the Hub if it is whole and fit for others.

Only when a run or a person says so.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

from resources.errors import GateClosed, StoreError
from resources.release.base import RELEASE, ReleaseDescription
from resources.release.files import DATA_PATH, bytes_sha256, list_parts, render_checksums
from resources.release.fitness import Fitness, fitness
from resources.release.hub import HubPush, HubTarget, LocalFile, local_files
from resources.release.local import LocalRelease
from resources.store.shard_store import ShardStore

_LOOKS = 3
"""Times to look again when another run begins to write a shard in the very moment."""

Log = Callable[[str], None]


def publish(
    about: ReleaseDescription, release: LocalRelease, hub: HubTarget, store: ShardStore, tag: str | None, log: Log
) -> HubPush:
    """Push the release to the repository, if it is whole and fit, and tag it.

    A release that lacks shards of the corpus is pushed and gets no tag; without `tag` the name is made from the
    contents, so that equal releases have one. Raises `GateClosed` or `StoreError` before anything is sent, and
    `HubError`.
    """

    def read() -> Mapping[str, LocalFile]:
        files = whole(about, release, store)
        require_fit(about, release)
        return files

    def name(files: Mapping[str, LocalFile]) -> str | None:
        missing = [shard for shard in about.shards if shard not in released(files)]
        if missing and tag is not None:
            raise GateClosed(
                f"{len(missing)} of {len(about.shards)} shards are missing, {missing[0]} first: no tag {tag}"
            )
        # The card counts too: one that says something else is another release.
        return None if missing else tag or f"release-{_release_digest(files)}"

    hub.require_repo()
    files = read()
    name(files)  # Raises before the Hub is asked.
    return hub.push(read, f"{about.title}: {len(released(files))} of {len(about.shards)} shards", name, log)


def whole(about: ReleaseDescription, release: LocalRelease, store: ShardStore) -> Mapping[str, LocalFile]:
    """Return the files of the release, with a card of this moment.

    No other run may be writing one of its shards. Raises `StoreError` for a shard that a run was killed in: its files
    are of two runs.
    """
    files = _described(about, release, store)
    if not released(files):
        raise StoreError(f"{release.root} holds no shard: materialize hf_release first")
    for shard, of_shard in released(files).items():
        table = store.read(RELEASE, shard, ["path", "sha256"]).to_pylist()
        if {row["path"]: row["sha256"] for row in table} != of_shard:
            raise StoreError(f"the released files of {shard} are not those of one run: materialize hf_release for it")
    return files


def _described(about: ReleaseDescription, release: LocalRelease, store: ShardStore) -> Mapping[str, LocalFile]:
    for _ in range(_LOOKS):
        for shard in about.shards:
            with store.exclusive(RELEASE, shard):
                pass
        release.finish(about)
        with release.locked() as folder, suppress(StoreError):
            return local_files(folder)
    raise StoreError(f"{release.root} is being written by another run: publish it when that is done")


def fitness_of(about: ReleaseDescription, release: LocalRelease) -> Fitness:
    """Return the fitness of the release as it lies in its folder."""
    with release.locked() as folder:
        return fitness(list_parts(folder), about)


def require_fit(about: ReleaseDescription, release: LocalRelease) -> None:
    """Raise `GateClosed` when quality or licences keep the release off the Hub."""
    if closed := fitness_of(about, release).closed:
        raise GateClosed(f"not published: {'; '.join(closed)}")


def _release_digest(files: Mapping[str, LocalFile]) -> str:
    return bytes_sha256(render_checksums({path: file.sha256 for path, file in files.items()}).encode())[:12]


def released(files: Mapping[str, LocalFile]) -> dict[str, dict[str, str]]:
    """Return SHA-256 by path of the data files of each shard."""
    found: dict[str, dict[str, str]] = {}
    for path, file in files.items():
        if match := DATA_PATH.fullmatch(path):
            found.setdefault(match["shard"], {})[path] = file.sha256
    return found
