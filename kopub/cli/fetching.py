"""Fetch the weights of a profile, and print their sizes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from kopub.cli.console import said, tell
from kopub.config.settings import read_settings
from kopub.doctor.checks import find_idle_card
from kopub.errors import visible
from kopub.states import phrase
from kopub.weights.fetch import check_cache, fetch, listed_online, require_room
from kopub.weights.files import WeightsFile, fetch_file
from kopub.weights.hub import Weights, cache_folder, pinned_weights


def fetch_weights() -> None:
    """Fetch what is missing or damaged, and say what is there. Raises `KopubError`."""
    settings = read_settings(os.environ)
    pins = pinned_weights(settings.engines)
    files: list[WeightsFile] = []
    for engine in settings.engines.values():
        files += engine.weights_files()
    for file in files:
        if not file.is_whole:
            with _bars():
                fetch_file(file)
        tell(phrase("{path}: {size:.1f} MB, its hash is the pinned one", file.path, file.path.stat().st_size / 1e6))
    if not pins and not files:
        tell(phrase("The profile {profile} takes no weights from the Hub.", settings.profile_name))
        if idle := find_idle_card(settings.engines):
            tell(phrase("{finding}: {remedy}", idle.says, idle.do))
    if not pins:
        return
    with Console(stderr=True).status(said("hashing what is there")):
        lists = {pin: listed_online(pin) for pin in pins}
        cached = {pin: check_cache(pin, lists[pin]) for pin in pins}
    for pin in pins:
        size, there = sum(file.size for file in lists[pin]), cached[pin].bytes
        lacking = "" if there >= size else phrase(", {size:.2f} of it in the cache", there / 1e9)
        tell(phrase("{weights}: {size:.2f} GB{lacking}", pin, size / 1e9, lacking))
        for name, what in cached[pin].damaged.items():
            tell(phrase("  {file} is damaged ({reason}) and is fetched again", visible(name), what))
    to_fetch = 0
    incomplete: list[Weights] = []
    for pin in pins:
        left = [file.size for file in lists[pin] if file.path not in cached[pin].whole]
        to_fetch += sum(left) - cached[pin].partial_bytes
        incomplete += [pin] if left else []
    require_room(to_fetch)
    if to_fetch:
        tell(phrase("{size:.2f} GB to fetch into {folder}", to_fetch / 1e9, cache_folder()))
    for pin in incomplete:
        with _bars():
            cached[pin] = fetch(pin, lists[pin], cached[pin])
    total = sum(files.bytes for files in cached.values())
    tell(phrase("{folder}: {size:.2f} GB, sizes and hashes are the Hub's", cache_folder(), total / 1e9))


@contextmanager
def _bars() -> Iterator[None]:
    """Show the progress bars of the Hub's client, but only at a terminal.

    In a log they would add a line every tenth of a second.
    """
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    silent = are_progress_bars_disabled()
    if not Console(stderr=True).is_terminal:
        disable_progress_bars()
    try:
        yield
    finally:
        if not silent:
            enable_progress_bars()
