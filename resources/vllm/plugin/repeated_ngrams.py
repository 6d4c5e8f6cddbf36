"""Which next tokens would repeat what was written shortly before. Pure."""

from collections.abc import Collection


def repeating(tokens: list[int], size: int, window: int, allowed: Collection[int]) -> set[int]:
    """Return the tokens that, written next, would end `size` tokens that stand among the last `window` already.

    Those of `allowed` are never among them. As vLLM defines it, nothing repeats where `size` is 1 or exceeds `window`.
    """
    found: set[int] = set()
    length = len(tokens)
    if length < size or size < 2:
        return found
    first, last = tokens[1 - size], tokens[-1]
    place = max(0, length - window) + size - 2
    # Asked for each request in each step: two calls into C find the few places where the last token stood before.
    for _ in range(tokens[place : length - 1].count(last)):
        place = tokens.index(last, place) + 1
        token, begin = tokens[place], place + 1 - size
        new = tokens[begin] == first and token not in allowed and token not in found
        if new and tokens[begin:place] == tokens[1 - size :]:
            found.add(token)
    return found
