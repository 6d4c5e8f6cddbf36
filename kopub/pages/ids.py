"""Ids of pages: which can be used, and what stands in for the others."""

MAX_BYTES = 200
"""Most UTF-8 bytes of an id. File systems allow names of 255 bytes; the rest is for an index and an extension."""


def problem_with(page_id: str) -> str | None:
    """Return why `page_id` cannot be used, as the end of a sentence, else None."""
    tests = (
        (not page_id, "is empty"),
        (len(page_id.encode("utf-8", "surrogatepass")) > MAX_BYTES, f"is longer than {MAX_BYTES} bytes"),
        (not page_id.isprintable(), "has characters that cannot be printed"),
        ("/" in page_id or "\\" in page_id, "has a slash"),
        (page_id in {".", ".."}, "names a folder"),
        (page_id != page_id.strip(), "begins or ends with a blank"),
    )
    return next((problem for failed, problem in tests if failed), None)


def stand_in(shard_key: str, row: int) -> str:
    """Return a row's stand-in id, whose slash distinguishes it from every usable id."""
    return f"{shard_key}/row_{row}"
