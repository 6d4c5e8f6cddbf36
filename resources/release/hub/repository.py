"""A release in a dataset repository of the Hub: the local folder, sent in as few commits as it takes.

`huggingface_hub` is held to 2.x from 2.4 on: it retries what passes and waits as long as the Hub asks,
hashes a file while it sends it, and takes `parent_commit`, by which of two writers one is refused.
Its `upload_folder` commits bit by bit, so a reader would find half a shard; here the files are sent
first, to where no reader looks, and `create_commit` then names them all at once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from resources.errors import HubError, StoreError
from resources.files import file_sha256
from resources.release.dataset import checksums, release_manifest
from resources.release.dataset.release_manifest import Manifest
from resources.release.hub.calls import Moved, insist
from resources.release.hub.difference import Difference, LocalFile, RemoteFile, commits, difference
from resources.resource import ProfileOnly, Resource

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, HfApi

_FILES_PER_UPLOAD = 256
"""Files that the client asks the Hub about in one request."""
_BYTES_PER_UPLOAD = 2_000_000_000
"""A line of progress every few minutes also where pages are large."""

Log = Callable[[str], None]
Files = Mapping[str, LocalFile]


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push came to. `difference` is what it found to do, `commit` what the repository is at now."""

    repo: str
    commit: str
    url: str
    difference: Difference
    tag: str | None


class HubTarget(Resource):
    """The repository that a release may be pushed to. Without `repo` there is none, and nothing leaves this machine.

    The token is the Hub login's own or `HF_TOKEN`; there is no key for it.
    """

    repo: ProfileOnly[str] = Field(
        default="", pattern=r"^([\w.-]+/[\w.-]+)?$", description="Dataset repository, `owner/name`; empty for none."
    )
    branch: str = Field(default="main", min_length=1, description="Branch that commits go to.")
    create: bool = Field(default=False, description="Make the repository, as a private one, when it is missing.")

    def difference(self, files: Files, log: Log) -> Difference:
        """What a push of `files` would change; nothing is sent. Raises `HubError`."""
        self.require_repo()

        def look() -> Difference:
            head = self._head(create=False)
            return self._difference(files, head)

        return insist(look, self.repo, log)

    def push(self, read: Callable[[], Files], summary: str, name: Callable[[Files], str | None], log: Log) -> Pushed:
        """Make the repository hold what `read` says the release is, check that it does, and then tag it.

        `name` is the tag of such files, None for none. `read` is asked again when the files change
        meanwhile. A run that was killed goes on where it was: what large file storage or the repository
        has is not sent again. Raises `HubError`.
        """
        self.require_repo()
        found: list[Difference] = []

        def send() -> tuple[str, Files]:
            files = read()
            head = self._head(create=self.create)
            todo = self._difference(files, head)
            found.append(todo)
            if todo.files:
                tag = name(files)
                # A tag is never moved, so a name that is taken is found out before anything is sent.
                if tag is not None and (taken := self._tagged(tag)):
                    raise HubError(_taken(self.repo, tag, taken))
                head = self._send(files, todo, head, summary, log)
            return head, files

        commit, files = insist(send, self.repo, log)
        insist(lambda: self._verify(files, commit), self.repo, log)
        tag = name(files)
        if tag is not None:
            insist(lambda: self._tag(tag, commit), self.repo, log)
        url = f"{self._api.endpoint}/datasets/{self.repo}/commit/{commit}"
        return Pushed(self.repo, commit, url, found[0], tag)

    @property
    def _api(self) -> "HfApi":
        from huggingface_hub import HfApi

        return HfApi(library_name="kopub")

    def require_repo(self) -> None:
        """Raise `HubError` when there is no repository to push to."""
        if not self.repo:
            raise HubError("no repository is configured: set hub.repo in the profile, or KOPUB_HUB__REPO")

    def _head(self, create: bool) -> str:
        """The commit the branch is at."""
        from huggingface_hub.errors import RepositoryNotFoundError

        try:
            return self._revision(self.branch)
        except RepositoryNotFoundError:
            if not create:
                raise
            self._api.create_repo(self.repo, repo_type="dataset", private=True, exist_ok=True)
            return self._revision(self.branch)

    def _revision(self, name: str) -> str:
        info = self._api.repo_info(self.repo, repo_type="dataset", revision=name)
        if info.sha is None:
            raise HubError(f"{self.repo}: the Hub does not say which commit {name} is at")
        return info.sha

    def _tree(self, commit: str) -> dict[str, RemoteFile]:
        """Every file of a commit: a request for each thousand."""
        from huggingface_hub.hf_api import RepoFile

        entries = self._api.list_repo_tree(self.repo, repo_type="dataset", revision=commit, recursive=True)
        return {
            entry.path: RemoteFile(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else None, entry.blob_id)
            for entry in entries
            if isinstance(entry, RepoFile)
        }

    def _difference(self, files: Files, commit: str) -> Difference:
        remote = self._tree(commit)
        found = difference(files, remote)
        if not found.removed or release_manifest.NAME not in remote:
            return found
        return difference(files, remote, self._manifest(commit))

    def _manifest(self, commit: str) -> Manifest | None:
        """The manifest that lies in the repository; None when no release wrote it."""
        path = self._api.hf_hub_download(self.repo, release_manifest.NAME, repo_type="dataset", revision=commit)
        try:
            return release_manifest.parse(Path(path).read_bytes())
        except StoreError:
            return None

    def _send(self, files: Files, todo: Difference, head: str, summary: str, log: Log) -> str:
        """Send the files, then commit them; the commit the branch is at afterwards."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        paths = [change.path for change in (*todo.added, *todo.changed)]
        _require(path for path in paths if not _there(files[path]))
        added = {path: CommitOperationAdd(path, _source(files[path])) for path in paths}
        # Nothing is sent in vain: another run may have replaced a file since.
        _require(path for path in paths if added[path].upload_info.sha256.hex() != files[path].sha256)
        sent = 0
        for group in _groups(files, paths):
            try:
                self._upload([added[path] for path in group])
            except (OSError, ValueError, RuntimeError):
                # What was announced is refused when a run replaces the file while it is read.
                _require(path for path in group if not _there(files[path], anew=True))
                raise
            sent += sum(files[path].size for path in group)
            log(f"{self.repo}: {sent:,} of {todo.bytes:,} bytes are there")
        for sending, removing in commits(todo):
            done = self._api.create_commit(
                self.repo,
                [*(added[path] for path in sending), *(CommitOperationDelete(path) for path in removing)],
                commit_message=summary,
                repo_type="dataset",
                revision=self.branch,
                parent_commit=head,
            )
            head = done.oid
            log(f"{self.repo}: {len(sending)} files in, {len(removing)} out by commit {head[:8]}")
        return head

    def _upload(self, additions: "Sequence[CommitOperationAdd]") -> None:
        """To large file storage; the few small files go with their commit."""
        self._api.preupload_lfs_files(
            self.repo, additions, repo_type="dataset", revision=self.branch, free_memory=False
        )

    def _verify(self, files: Files, commit: str) -> None:
        """Read back what the Hub has at `commit`, and compare every hash."""
        rest = difference(files, self._tree(commit))
        if rest.files:
            first = next(rest.lines())
            raise HubError(
                f"{self.repo}: commit {commit[:8]} differs from the release in {rest.files} files ({first}); "
                "it was not tagged, publish it again"
            )

    def _tag(self, tag: str, commit: str) -> None:
        at = self._tagged(tag)
        if at is None:
            self._api.create_tag(self.repo, tag=tag, revision=commit, repo_type="dataset")
        elif at != commit:
            raise HubError(_taken(self.repo, tag, at))

    def _tagged(self, tag: str) -> str | None:
        """The commit that the tag is at; None when there is no such tag."""
        tags = self._api.list_repo_refs(self.repo, repo_type="dataset").tags
        return next((ref.target_commit for ref in tags if ref.name == tag), None)


def _taken(repo: str, tag: str, commit: str) -> str:
    return f"{repo}: the tag {tag} is at commit {commit[:8]} already; choose another name"


def _require(changed: Iterable[str]) -> None:
    """Raise `Moved` for the first of the files that are not what the release says."""
    if (path := next(iter(changed), None)) is not None:
        raise Moved(
            f"{path} is not the file that {checksums.NAME} lists: another run replaced it, or see `kopub verify`"
        )


def _there(file: LocalFile, anew: bool = False) -> bool:
    """Whether the file is still the one that is meant: by its size, or by its bytes `anew`."""
    if file.content is not None:
        return True
    there = file.file.is_file() and file.file.stat().st_size == file.size
    return there and (not anew or file_sha256(file.file) == file.sha256)


def _source(file: LocalFile) -> str | bytes:
    return str(file.file) if file.content is None else file.content


def _groups(files: Files, paths: Sequence[str]) -> Iterator[list[str]]:
    """The paths in groups that are sent one after the other.

    Files of equal contents, as empty ones are, come after the first of them: the client would send
    both of a group.
    """
    first = {files[path].sha256: path for path in reversed(paths)}
    unique = [path for path in paths if first[files[path].sha256] == path]
    for these in (unique, [path for path in paths if first[files[path].sha256] != path]):
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
