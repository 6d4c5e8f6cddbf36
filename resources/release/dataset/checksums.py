"""SHA256SUMS: the hash of every other file of a release, for `sha256sum -c` and for telling releases apart. Pure."""

import hashlib
from collections.abc import Mapping

NAME = "SHA256SUMS"


def parse(text: str) -> dict[str, str]:
    """SHA-256 by path, relative to the release."""
    return {path: sha256 for sha256, _, path in (line.partition("  ") for line in text.splitlines())}


def of_data(sums: Mapping[str, str]) -> dict[str, str]:
    """Those of the data files; a release of an older version lists no others."""
    return {path: sha256 for path, sha256 in sums.items() if path.startswith("data/")}


def render(sums: Mapping[str, str]) -> str:
    return "".join(f"{sums[path]}  {path}\n" for path in sorted(sums))


def digest(sums: Mapping[str, str], config: str) -> str:
    """16 hex digits that stand for the contents of a config."""
    files = {path: sha256 for path, sha256 in sums.items() if path.startswith(f"data/{config}/")}
    return hashlib.sha256(render(files).encode()).hexdigest()[:16]


def of_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_blob(content: bytes) -> str:
    """The hash that git, and the Hub for a small file, knows `content` by."""
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()
