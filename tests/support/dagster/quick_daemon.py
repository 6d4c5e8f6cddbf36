"""Dagster's daemon, changed only to look for work every few seconds instead of every 30."""

from dagster._core.remote_representation.external import RemoteSensor
from dagster._core.scheduler.instigation import InstigatorState
from dagster._daemon import asset_daemon, controller, sensor
from dagster._daemon.cli import main
from dagster._daemon.sensor import get_elapsed

SECONDS = 3
OF_A_SENSOR = 8
"""Seconds between a sensor's evaluations, which are real work."""


def looked_just_now(state: InstigatorState, _: RemoteSensor, minimum_allowed_min_interval: int | None = None) -> bool:
    """Return whether a sensor ran less than `OF_A_SENSOR` seconds ago, whatever its own interval."""
    elapsed = get_elapsed(state)
    return elapsed is not None and elapsed < OF_A_SENSOR


def quick_main() -> None:
    controller.DEFAULT_DAEMON_INTERVAL_SECONDS = SECONDS
    for module in (asset_daemon, sensor):
        setattr(module, "is_under_min_interval", looked_just_now)  # noqa: B010
    main()
