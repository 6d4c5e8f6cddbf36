"""Seconds as people say them."""


def duration(seconds: float) -> str:
    """For a person: `8 ms`, `0.4 s`, `12 s`, `3 min`, `1.5 h`."""
    if not seconds:
        return "0 s"
    if seconds < 0.05:
        return f"{max(1, round(1000 * seconds))} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
