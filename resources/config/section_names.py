"""The sections and values of a profile by their names, for what reads a few of them without loading an engine."""

ENGINES = ("layout", "recognition", "embedding", "notes")
"""The sections that choose an engine."""
SECTIONS = (
    *ENGINES,
    "figures",
    "corpus",
    "store",
    "release",
    "hub",
    "pdf",
    "gates",
    "upgrades",
    "search",
    "reading_room",
)
VALUES = ("shards_per_run",)
"""Keys that are no sections."""
