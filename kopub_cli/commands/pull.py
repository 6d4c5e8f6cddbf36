"""`kopub pull`: the pinned weights of a profile, into the Hub's cache."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from kopub_cli.display.console import tell
from resources.printable import visible


def pull() -> None:
    """Fetch the weights that the profile pins, and verify them: sizes and hashes as the Hub lists them.

    What was fetched before is kept, an interrupted download resumes, and a damaged file is fetched again.
    """
    from resources.config.settings import read_settings
    from resources.doctor.gpus import idle_card
    from resources.weights.fetch import examine, fetch, listed_online, require_room
    from resources.weights.pinned import pinned_weights
    from resources.weights.repository import cache_folder

    settings = read_settings(os.environ)
    pins = pinned_weights(settings.engines)
    if not pins:
        tell(f"The profile {settings.profile_name} takes no weights from the Hub.")
        if idle := idle_card(settings.engines):
            tell(f"{idle.says}: {idle.do}")
        return
    with _status("hashing what is there"):
        lists = {pin: listed_online(pin) for pin in pins}
        found = {pin: examine(pin, lists[pin]) for pin in pins}
    for pin in pins:
        size = sum(file.size for file in lists[pin])
        tell(f"{pin}: {size / 1e9:.2f} GB{_lacking(found[pin].bytes / 1e9, size / 1e9)}")
        for name, what in found[pin].damaged.items():
            tell(f"  {visible(name)} is damaged ({what}) and is fetched anew")
    left = {pin: [f for f in lists[pin] if f.path not in found[pin].whole] for pin in pins}
    to_fetch = sum(file.size for files in left.values() for file in files) - sum(e.begun for e in found.values())
    require_room(to_fetch)
    if to_fetch:
        tell(f"{to_fetch / 1e9:.2f} GB to fetch into {cache_folder()}")
    for pin in pins:
        if left[pin]:
            with _bars():
                found[pin] = fetch(pin, lists[pin], found[pin])
    total = sum(each.bytes for each in found.values())
    tell(f"{cache_folder()}: {total / 1e9:.2f} GB, sizes and hashes are the Hub's")


def _lacking(there: float, size: float) -> str:
    return "" if there >= size else f", {there:.2f} of it in the cache"


@contextmanager
def _status(what: str) -> Iterator[None]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


@contextmanager
def _bars() -> Iterator[None]:
    """The bars of the Hub's client, at a terminal alone: in a log they would be a line every tenth of a second."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    silent = are_progress_bars_disabled()
    if not Console(stderr=True).is_terminal:
        disable_progress_bars()
    try:
        yield
    finally:
        if not silent:
            enable_progress_bars()
