"""What tells a URL of a file system from a path of this machine."""


def is_url(text: str) -> bool:
    """Whether a person or a setting names a URL."""
    return "://" in text
