"""Where the reading room is found: the section `reading_room` of a profile."""

from urllib.parse import quote, urlencode, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

LOCAL = "http://127.0.0.1:3030"
"""Beside the UI's port 3000."""
DAGSTER = "http://127.0.0.1:3000"
"""Where `make ui` serves."""


class ReadingRoom(BaseModel):
    """The address of `kopub browse`, which Dagster's UI links to, and that of Dagster's UI."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(
        default=LOCAL,
        description="Address under which people's browsers find it; null leaves the links out. `kopub browse` serves "
        "at its port.",
    )

    dagster_url: str | None = Field(
        default=DAGSTER,
        description="Address of Dagster's UI, to which the reading room links runs; null leaves the links out.",
    )

    @field_validator("url", "dagster_url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is no address such as {LOCAL}")
        # Reading it raises for what is no port.
        parts.port  # noqa: B018
        return url.rstrip("/")

    @property
    def port(self) -> int:
        """The port of the address, where it is one of this machine; else the usual one."""
        parts = urlsplit(self.url or LOCAL)
        local = parts.hostname in ("127.0.0.1", "localhost")
        return (local and parts.port) or urlsplit(LOCAL).port or 0

    def of_run(self, run_id: str) -> str | None:
        """The address of a run in Dagster's UI."""
        return None if self.dagster_url is None else f"{self.dagster_url}/runs/{quote(run_id, safe='')}"

    def of_shard(self, shard: str) -> str | None:
        """The address of a shard's documents."""
        return None if self.url is None else f"{self.url}/documents?{urlencode({'shard': shard})}"
