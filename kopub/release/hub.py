"""Pushes a release to a dataset repository of the Hub in few commits.

`huggingface_hub` is held to 2.x from 2.4 on: it retries temporary errors and waits as long as the Hub requests, hashes
a file while sending it, and takes `parent_commit`, by which one of two writers is refused. Its `upload_folder` commits
bit by bit, so a reader could find half a shard; here the files are first sent to a place where no reader looks, and
then `create_commit` names them all at once.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from kopub.engine import ProfileOnly, Resource
from kopub.errors import HubError, StoreError
from kopub.files import file_sha256
from kopub.release.files import (
    CHECKSUMS,
    DATA_PATH,
    MANIFEST,
    ChangedRelease,
    ReleaseManifest,
    data_checksums,
    files_digest,
    parse_checksums,
    parse_manifest,
)
from kopub.release.local import TEXTS
from kopub.states import phrase

if TYPE_CHECKING:
    from huggingface_hub import HfApi


FILES_PER_COMMIT = 1000
"""Most files of a commit, as in the Hub's own client; a shard has eight."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of the folder.

    Files that describe the release have `content`, the others `file`.
    """

    path: str
    sha256: str
    size: int
    rows: int | None
    file: Path
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of the repository.

    In large file storage it has a `sha256`, otherwise the hash of its git blob.
    """

    path: str
    size: int
    sha256: str | None
    git_blob: str


@dataclass(frozen=True, slots=True)
class HubChange:
    """A file that is added, changed or removed.

    Size and rows are those it will have or had; None if unknown.
    """

    path: str
    size: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class HubDifference:
    """The files that a repository lacks, has in another version, or should not have.

    They are sorted by path.
    """

    added: Sequence[HubChange] = field(default_factory=list)
    changed: Sequence[HubChange] = field(default_factory=list)
    removed: Sequence[HubChange] = field(default_factory=list)

    @property
    def files(self) -> int:
        return len(self.added) + len(self.changed) + len(self.removed)

    @property
    def bytes(self) -> int:
        """The most bytes to send; large file storage takes only what it lacks."""
        return sum(change.size for change in (*self.added, *self.changed))

    def lines(self) -> Iterator[str]:
        """Yield a readable line for each file, then the sums."""
        kinds = (
            ("+", "{count} files added: {size:,} bytes, {rows:,} rows", self.added),
            ("~", "{count} files changed: {size:,} bytes, {rows:,} rows", self.changed),
            ("-", "{count} files removed: {size:,} bytes, {rows:,} rows", self.removed),
        )
        sums: list[str] = []
        for sign, form, changes in kinds:
            size = rows = 0
            for change in changes:
                size += change.size
                rows += change.rows or 0
                its_rows = "" if change.rows is None else phrase(", {rows:,} rows", change.rows)
                yield phrase("{sign} {path} ({size:,} bytes{rows})", sign, change.path, change.size, its_rows)
            sums.append(phrase(form, len(changes), size, rows))
        yield from sums


def local_files(folder: Path) -> dict[str, LocalFile]:
    """Return the files of a release by path, according to its lists.

    Raises `StoreError` if the lists do not agree.
    """
    texts: dict[str, bytes] = {}
    for name in TEXTS:
        try:
            texts[name] = (folder / name).read_bytes()
        except OSError:
            raise StoreError("{folder} has no {name}: materialize hf_release first", folder, name) from None
    manifest = parse_manifest(texts[MANIFEST])
    if data_checksums(parse_checksums(texts[CHECKSUMS].decode())) != manifest.hashes:
        form = "{folder} is being written by another run, or one was killed: materialize hf_release again"
        raise StoreError(form, folder)
    files: dict[str, LocalFile] = {}
    for path, file in manifest.files.items():
        files[path] = LocalFile(path, file.sha256, file.bytes, file.rows, folder / path)
    for name, content in texts.items():
        sha256 = hashlib.sha256(content).hexdigest()
        files[name] = LocalFile(name, sha256, len(content), None, folder / name, content)
    return files


def release_digest(files: Mapping[str, LocalFile]) -> str:
    """Return hex digits that identify the contents of a release, its texts included."""
    return files_digest({path: file.sha256 for path, file in files.items()})


def difference(
    local: Mapping[str, LocalFile], remote: Mapping[str, RemoteFile], before: ReleaseManifest | None = None
) -> HubDifference:
    """Return the changes that make `remote` equal to `local`.

    `before` is the manifest of `remote`, which has the rows of the files to remove. Files that no release writes are
    left alone.
    """
    added: list[HubChange] = []
    changed: list[HubChange] = []
    removed: list[HubChange] = []
    for path, file in sorted(local.items()):
        if path not in remote:
            added.append(HubChange(file.path, file.size, file.rows))
        elif not have_same_bytes(file, remote[path]):
            changed.append(HubChange(file.path, file.size, file.rows))
    for path, file in sorted(remote.items()):
        if path not in local and DATA_PATH.fullmatch(path):
            listed = before.files.get(path) if before else None
            removed.append(HubChange(path, file.size, listed.rows if listed else None))
    return HubDifference(added, changed, removed)


def have_same_bytes(local: LocalFile, remote: RemoteFile) -> bool:
    """Return whether both hold the same bytes, by their hashes."""
    if local.size != remote.size:
        return False
    if remote.sha256 is not None:
        return local.sha256 == remote.sha256
    from huggingface_hub.utils.sha import git_hash

    content = local.file.read_bytes() if local.content is None else local.content
    return git_hash(content) == remote.git_blob


def plan_commits(changes: HubDifference) -> list[tuple[list[str], list[str]]]:
    """Return the paths to send and to remove in each commit.

    A shard is never divided between commits. The files that describe the release, and all removals, are in the last
    one: until then the repository describes its old contents.
    """
    removed = [change.path for change in changes.removed]
    by_shard: dict[str, list[str]] = {}
    last: list[str] = []
    for change in sorted((*changes.added, *changes.changed), key=attrgetter("path")):
        if match := DATA_PATH.fullmatch(change.path):
            by_shard.setdefault(match["shard"], []).append(change.path)
        else:
            last.append(change.path)
    groups: list[list[str]] = [[]]
    for paths in by_shard.values():
        if groups[-1] and len(groups[-1]) + len(paths) > FILES_PER_COMMIT:
            groups.append([])
        groups[-1] += paths
    if len(groups[-1]) + len(last) + len(removed) > FILES_PER_COMMIT and groups[-1]:
        groups.append([])
    return [(group, []) for group in groups[:-1]] + [([*groups[-1], *last], removed)]


_CHANGED = "{path} is not the file that {file} lists: another run replaced it, or see `kopub verify`"
_FILES_PER_UPLOAD = 256
"""Files for which the client queries the Hub in one request."""
_BYTES_PER_UPLOAD = 2_000_000_000
"""Small enough for a line of progress every few minutes even if pages are large."""

Log = Callable[[str], None]
Files = Mapping[str, LocalFile]


@dataclass(frozen=True, slots=True)
class HubPush:
    """The result of a push.

    `difference` is the changes that it found, `commit` the present commit of the repository.
    """

    repo: str
    commit: str
    url: str
    difference: HubDifference
    tag: str | None


class HubTarget(Resource):
    """The repository that a release may be pushed to.

    Without `repo` there is none, and nothing leaves this machine. The token is the Hub login's own or `HF_TOKEN`; there
    is no key for it.
    """

    repo: ProfileOnly[str] = Field(
        default="", pattern=r"^([\w.-]+/[\w.-]+)?$", description="Dataset repository, `owner/name`; empty for none."
    )
    branch: str = Field(default="main", min_length=1, description="Branch that commits go to.")
    create: bool = Field(default=False, description="Make the repository, as a private one, if it is missing.")

    def difference(self, files: Files, log: Log) -> HubDifference:
        """Return the changes that a push of `files` would make; nothing is sent.

        Raises `HubError`.
        """
        from kopub.release.hub_calls import call_hub

        self.require_repo()
        return call_hub(lambda: self._difference(files, self._head(create=False)), self.repo, log)

    def push(self, read: Callable[[], Files], summary: str, name: Callable[[Files], str | None], log: Log) -> HubPush:
        """Push the release that `read` returns, check the repository, and then tag it.

        `name` returns the tag for such files, or None. `read` is called again if the files change meanwhile. A run that
        was killed continues where it stopped: files in large file storage or the repository are not sent again. Raises
        `HubError`.
        """
        from kopub.release.hub_calls import call_hub

        self.require_repo()
        differences: list[HubDifference] = []

        def send() -> tuple[str, Files]:
            files = read()
            head = self._head(create=self.create)
            todo = self._difference(files, head)
            differences.append(todo)
            if todo.files:
                tag = name(files)
                # A tag is never moved, so its name is checked before anything is sent.
                if tag is not None and (other_commit := self._tagged_commit(tag)):
                    raise HubError(_taken(self.repo, tag, other_commit))
                head = self._send(files, todo, head, summary, log)
            return head, files

        commit, files = call_hub(send, self.repo, log)
        call_hub(lambda: self._verify(files, commit), self.repo, log)
        tag = name(files)
        if tag is not None:
            call_hub(lambda: self._tag(tag, commit), self.repo, log)
        url = f"{self._api.endpoint}/datasets/{self.repo}/commit/{commit}"
        return HubPush(self.repo, commit, url, differences[0], tag)

    @property
    def _api(self) -> "HfApi":
        from huggingface_hub import HfApi

        return HfApi(library_name="kopub")

    def require_repo(self) -> None:
        """Raise `HubError` if there is no repository to push to."""
        if not self.repo:
            raise HubError("no repository is configured: set hub.repo in the profile, or KOPUB_HUB__REPO")

    def _head(self, create: bool) -> str:
        """Return the commit that the branch is at."""
        from huggingface_hub.errors import RepositoryNotFoundError

        look = partial(self._api.repo_info, self.repo, repo_type="dataset", revision=self.branch)
        try:
            commit = look().sha
        except RepositoryNotFoundError:
            if not create:
                raise
            self._api.create_repo(self.repo, repo_type="dataset", private=True, exist_ok=True)
            commit = look().sha
        if commit is None:
            raise HubError("{repo}: the Hub does not say which commit {revision} is at", self.repo, self.branch)
        return commit

    def _tree(self, commit: str) -> dict[str, RemoteFile]:
        """Return every file of a commit, with a request for each thousand."""
        from huggingface_hub.hf_api import RepoFile

        files: dict[str, RemoteFile] = {}
        for entry in self._api.list_repo_tree(self.repo, repo_type="dataset", revision=commit, recursive=True):
            if isinstance(entry, RepoFile):
                sha256 = entry.lfs.sha256 if entry.lfs else None
                files[entry.path] = RemoteFile(entry.path, entry.size, sha256, entry.blob_id)
        return files

    def _difference(self, files: Files, commit: str) -> HubDifference:
        remote = self._tree(commit)
        changes = difference(files, remote)
        if not changes.removed or MANIFEST not in remote:
            return changes
        # Only the manifest says how many rows the files to remove have; one that no release wrote says nothing.
        path = self._api.hf_hub_download(self.repo, MANIFEST, repo_type="dataset", revision=commit)
        try:
            manifest = parse_manifest(Path(path).read_bytes())
        except StoreError:
            manifest = None
        return difference(files, remote, manifest)

    def _send(self, files: Files, todo: HubDifference, head: str, summary: str, log: Log) -> str:
        """Send the files, commit them, and return the commit of the branch."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        paths = [change.path for change in (*todo.added, *todo.changed)]
        # Another run may have replaced a file since, and sending it would be in vain.
        for path in paths:
            _require_unchanged(files[path])
        added: dict[str, CommitOperationAdd] = {}
        for path in paths:
            file = files[path]
            added[path] = CommitOperationAdd(path, str(file.file) if file.content is None else file.content)
            if added[path].upload_info.sha256.hex() != file.sha256:
                raise ChangedRelease(phrase(_CHANGED, path, CHECKSUMS))
        sent = 0
        for group in _groups(files, paths):
            try:
                # The few small files go with their commit.
                self._api.preupload_lfs_files(
                    self.repo,
                    [added[path] for path in group],
                    repo_type="dataset",
                    revision=self.branch,
                    free_memory=False,
                )
            except (OSError, ValueError, RuntimeError):
                # The Hub refuses a file that a run replaces while it is read, as it differs from the announced one.
                for path in group:
                    _require_unchanged(files[path], anew=True)
                raise
            sent += sum(files[path].size for path in group)
            log(phrase("{repo}: {sent:,} of {whole:,} bytes are there", self.repo, sent, todo.bytes))
        for sending, removing in plan_commits(todo):
            done = self._api.create_commit(
                self.repo,
                [*(added[path] for path in sending), *(CommitOperationDelete(path) for path in removing)],
                commit_message=summary,
                repo_type="dataset",
                revision=self.branch,
                parent_commit=head,
            )
            head = done.oid
            form = "{repo}: {added} files in, {removed} out by commit {commit}"
            log(phrase(form, self.repo, len(sending), len(removing), head[:8]))
        return head

    def _verify(self, files: Files, commit: str) -> None:
        """Read back the Hub's files at `commit`, and compare every hash."""
        rest = difference(files, self._tree(commit))
        if rest.files:
            first = next(rest.lines())
            form = (
                "{repo}: commit {commit} differs from the release in {count} files ({file}); it was not tagged, "
                "publish it again"
            )
            raise HubError(form, self.repo, commit[:8], rest.files, first)

    def _tag(self, tag: str, commit: str) -> None:
        at = self._tagged_commit(tag)
        if at is None:
            self._api.create_tag(self.repo, tag=tag, revision=commit, repo_type="dataset")
        elif at != commit:
            raise HubError(_taken(self.repo, tag, at))

    def _tagged_commit(self, tag: str) -> str | None:
        """Return the commit of the tag; None if there is no such tag."""
        tags = self._api.list_repo_refs(self.repo, repo_type="dataset").tags
        return {ref.name: ref.target_commit for ref in tags}.get(tag)


def _taken(repo: str, tag: str, commit: str) -> str:
    return phrase("{repo}: the tag {tag} is at commit {commit} already; choose another name", repo, tag, commit[:8])


def _require_unchanged(file: LocalFile, anew: bool = False) -> None:
    """Raise `ChangedRelease` for a file of another size, or other bytes if `anew`."""
    if file.content is not None:
        return
    is_there = file.file.is_file() and file.file.stat().st_size == file.size
    if not is_there or (anew and file_sha256(file.file) != file.sha256):
        raise ChangedRelease(phrase(_CHANGED, file.path, CHECKSUMS))


def _groups(files: Files, paths: Sequence[str]) -> Iterator[list[str]]:
    """Yield the paths in groups that are sent one after another.

    Copies of a file, such as empty ones, are in later groups than the first, since the client would send both.
    """
    firsts: dict[str, str] = {}
    copies: list[str] = []
    for path in paths:
        if firsts.setdefault(files[path].sha256, path) != path:
            copies.append(path)
    for these in (firsts.values(), copies):
        group: list[str] = []
        size = 0
        for path in these:
            if group and (len(group) == _FILES_PER_UPLOAD or size + files[path].size > _BYTES_PER_UPLOAD):
                yield group
                group, size = [], 0
            group.append(path)
            size += files[path].size
        if group:
            yield group
