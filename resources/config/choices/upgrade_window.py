"""When what a new model makes stale is made again: the section `upgrades` of a profile."""

from datetime import datetime, time
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

_HOUR, _DAY = 60, 24 * 60
"""Minutes."""


class Upgrades(BaseModel):
    """The night in which stale shards may be started."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(default=False, description="Whether it is on when it is first loaded; the UI can switch it.")
    start: time = Field(default=time(2), description="Beginning of the night, HH:MM.")
    end: time = Field(default=time(6), description="Nothing is started after it; what runs by then goes on.")
    timezone: str = Field(default="Asia/Seoul", description="Of `start` and `end`, as in the IANA database.")

    @field_validator("start", "end", mode="before")
    @classmethod
    def _minutes(cls, value: Any) -> Any:
        """YAML 1.1 takes an unquoted 22:00 for a number of base 60."""
        if isinstance(value, int) and 0 <= value < _DAY:
            return time(*divmod(value, _HOUR))
        return value

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"{name!r} is no time zone; it is one like Asia/Seoul") from None
        return name

    @model_validator(mode="after")
    def _not_empty(self) -> "Upgrades":
        if self.start == self.end:
            raise ValueError("start: it is the same as end, so there is no night")
        return self

    def __str__(self) -> str:
        return f"from {self.start:%H:%M} to {self.end:%H:%M} {self.timezone}"

    @property
    def cron(self) -> str:
        """The beginning of every night."""
        return f"{self.start.minute} {self.start.hour} * * *"

    def is_night(self, now: datetime) -> bool:
        """Whether work may be started at `now`, which knows its time zone."""
        local = now.astimezone(ZoneInfo(self.timezone)).time()
        # By the clock on the wall: a night that begins in the evening ends on the next day.
        since_start, length = (_minutes_of(moment) - _minutes_of(self.start) for moment in (local, self.end))
        return since_start % _DAY < length % _DAY


def _minutes_of(moment: time) -> int:
    return moment.hour * _HOUR + moment.minute
