"""Seconds as people say them."""


def duration(seconds: float) -> str:
    """For a person: `0.4 s`, `12 s`, `3 min`, `1.5 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s" if seconds else "0 s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
