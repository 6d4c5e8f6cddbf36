"""Which page ids can be used: as keys, in file names and in links."""

MAX_BYTES = 200
"""Longest id in UTF-8. File systems take names of 255 bytes; the rest is room for an index and an extension."""


def problem_with(page_id: str) -> str | None:
    """Why `page_id` cannot be used, as the end of a sentence that begins with the id; None when it can."""
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
    """The id of a row without a usable one. It holds a slash, so no usable id is equal to it."""
    return f"{shard_key}/row_{row}"
