"""A folder that is made on this machine and then lies at a URL, in the place of one that was made before."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resources.errors import StoreError
from resources.parallel import bounded_map
from resources.store.files.faults import patiently, told
from resources.store.files.objects import Objects

_AT_ONCE = 8
_UNDER_WAY = b'{"complete": false}\n'


@contextmanager
def uploaded(url: str, marker: str) -> Iterator[Path]:
    """A new folder to write into; what is in it when the context ends without an error lies at `url` then.

    `marker` is the file by which the writer of such folders knows them, and says when one is complete: it is the last
    that comes, and while others come it says that they do. Raises `StoreError` when anything else lies at the URL, and
    when the storage does not answer.
    """
    objects, root = Objects.at(url.rstrip("/"))
    before = _below(objects, root)
    if before and marker not in before:
        raise StoreError(f"{url} holds files that no such export wrote; name a new or empty place")
    with tempfile.TemporaryDirectory(prefix="kopub-export-") as made:
        folder = Path(made) / "out"
        yield folder
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        objects.put(f"{root}/{marker}", _UNDER_WAY)

        def send(name: str) -> None:
            with told(f"{url}/{name}", "written"):
                patiently(lambda: objects.fs.put_file(str(folder / name), f"{root}/{name}"))

        for _ in bounded_map(send, (name for name in files if name != marker), _AT_ONCE):
            pass
        objects.remove_all([f"{root}/{name}" for name in sorted(before - set(files) - {marker})])
        objects.put(f"{root}/{marker}", (folder / marker).read_bytes())


def _below(objects: Objects, root: str) -> set[str]:
    return {path.removeprefix(f"{root}/") for path in objects.below(root)}
