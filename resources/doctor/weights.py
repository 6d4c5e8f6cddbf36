"""Whether the Hub or its cache gives the weights, and whether those in the cache are whole."""

from collections.abc import Callable, Iterator, Sequence

from resources.doctor.finding import Finding, ok, problem, warning
from resources.errors import HubError
from resources.weights.fetch import free_bytes
from resources.weights.hub_errors import UNREACHABLE
from resources.weights.pinned import Weights
from resources.weights.repository import Listed, ask_hub, cache_folder, is_offline, remembered
from resources.weights.whole import Found, examine

_PULL = "kopub pull"
Step = Callable[[str, int], None]


def weights(pins: Sequence[Weights], step: Step = lambda *_: None) -> Iterator[Finding]:
    """The Hub first, then each of the weights, then the disk for what is missing of them."""
    if not pins:
        return
    lists: dict[Weights, list[Listed]] = {}
    refused: dict[Weights, str] = {}
    for pin in pins if not is_offline() else ():
        try:
            lists[pin] = ask_hub(pin)
        except HubError as error:
            refused[pin] = str(error).removeprefix(f"{pin}: ")
            if refused[pin].startswith(UNREACHABLE):
                break
    found = {pin: examine(pin, lists.get(pin) or remembered(pin), step) for pin in pins}
    cached = all(each.is_whole for each in found.values())
    yield _hub(list(refused.values()), cached)
    online = {pin for pin in pins if pin in lists}
    for pin, each in found.items():
        said = refused.get(pin, "")
        yield _one(pin, each, pin in online, "" if said.startswith(UNREACHABLE) else said)
    missing = sum(each.bytes_missing for each in found.values())
    if missing:
        yield _room(missing)


def _hub(said: Sequence[str], cached: bool) -> Finding:
    if is_offline():
        return ok("hub", f"HF_HUB_OFFLINE is set: only {cache_folder()} is looked into")
    silent = [line for line in said if line.startswith(UNREACHABLE)]
    if not silent:
        return ok("hub", "it answers")
    reason, _, do = silent[0].rpartition(": ")
    if cached:
        return warning("hub", f"{reason}; the weights are in its cache", "HF_HUB_OFFLINE=1 spares the waiting for it")
    return problem("hub", reason, do)


def _one(pin: Weights, found: Found, listed: bool, refused: str) -> Finding:
    check = f"{' and '.join(pin.sections)} weights"
    if refused:
        reason, _, do = refused.partition(": ")
        return problem(check, f"{pin}: {reason}", do)
    if found.damaged:
        name, what = next(iter(found.damaged.items()))
        return problem(check, f"{pin}: {name} is damaged ({what})", f"{_PULL} fetches it anew")
    if found.is_whole:
        proof = "sizes and hashes are the Hub's" if listed else "hashes are those that the cache names them by"
        return ok(check, f"{pin}: {found.bytes / 1e9:.2f} GB, {len(found.whole)} files; {proof}")
    begun = f", of which {found.begun / 1e9:.2f} were begun" if found.begun else ""
    size = f"{found.bytes_missing / 1e9:.2f} GB" if found.bytes_missing else ", ".join(found.missing)
    says = f"{pin}: {size} are not in the cache{begun}"
    if listed:
        return warning(check, f"{says}; the first run fetches them while its server starts", f"{_PULL} does it now")
    return problem(check, says, f"{_PULL} where there is a network, or bring the Hub's cache along")


def _room(missing: int) -> Finding:
    free = free_bytes(cache_folder())
    says = f"{free / 1e9:.0f} GB free for weights in {cache_folder()}; {missing / 1e9:.1f} are to be fetched"
    if free > missing:
        return ok("disk for weights", says)
    return problem("disk for weights", says, "free some space, or set HF_HUB_CACHE to another disk")
