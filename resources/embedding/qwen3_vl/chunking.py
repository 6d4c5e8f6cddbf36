"""Texts as prompts of tokens, long ones in chunks; nothing is cut off. Pure; the tokenizer is a file."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from resources.errors import EngineError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_TURN = "<|im_start|>"
_HEAD = f"{_TURN}system\n{{instruction}}<|im_end|>\n{_TURN}"
_START = "user\n"
_TAIL = f"<|im_end|>\n{_TURN}assistant\n"
_REACH = 8
"""A chunk ends within this part of its length from where equal chunks would end."""
_IMAGE_MARKS = 2
"""Tokens that mark the start and the end of an image."""
_SENTENCE_ENDS = ".?!。"


class Chunker:
    """Makes prompts of texts below one instruction, of at most `max_tokens` tokens each, template included.

    The template is the one that the model's authors embed with. Special tokens spelt out in a text
    are text, so that no page can end its turn. Raises `EngineError` for a tokenizer of another kind.
    """

    def __init__(self, tokenizer: Path, instruction: str, max_tokens: int) -> None:
        self._tokenizer = _ahead.pop(tokenizer, None) or _read(tokenizer)
        # A tokenizer's file may hold a length that it cuts everything to.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        head = _HEAD.format(instruction=instruction)
        self._head, self._start = self._plain(head), self._plain(_START)
        tail = self._plain(_TAIL)
        core = [*self._head, *self._start, *tail]
        whole = self._tokenizer.encode(head + _START + _TAIL).ids
        if whole[: len(core)] != core or self._tokenizer.token_to_id(_TURN) is None:
            raise EngineError(f"{tokenizer} is of another model: it does not keep the turns of Qwen3-VL apart")
        # The tokenizer adds the token that the vector is read at to every prompt.
        self._tail = [*tail, *whole[len(core) :]]
        self._room = max_tokens - len(self._head) - len(self._start) - len(self._tail)
        if self._room < 1:
            raise EngineError(
                f"max_tokens: {max_tokens} leave no room beside the instruction of {len(head)} characters"
            )
        self._tokenizer.encode_special_tokens = True

    def prompts(self, text: str) -> list[list[int]]:
        """The prompts of a text: one, or one for each of as few chunks as hold it, cut between sentences."""
        turn = _START + text
        encoded = self._tokenizer.encode(turn, add_special_tokens=False)
        chunks = [slice(*ends) for ends in _chunks(turn, encoded.offsets, self._room + len(self._start), self._room)]
        opened = [encoded.ids[part] if part.start == 0 else [*self._start, *encoded.ids[part]] for part in chunks]
        return [[*self._head, *ids, *self._tail] for ids in opened]

    def beginning(self, text: str, most: int) -> tuple[str, int]:
        """As much of a text as has at most `most` tokens, and how many it has; cut between characters."""
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        while len(encoded.ids) > most:
            text = text[: min(encoded.offsets[most][0], len(text) - 1)]
            encoded = self._tokenizer.encode(text, add_special_tokens=False)
        return text, len(encoded.ids)

    def tokens_around_image(self) -> int:
        """Tokens of a prompt that holds an image instead of a text, without the image's own."""
        return len(self._head) + len(self._start) + _IMAGE_MARKS + len(self._tail)

    def _plain(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids


_ahead: "dict[Path, Tokenizer]" = {}
"""Tokenizers that no `Chunker` has taken yet. Each takes its own: it changes how special tokens are read."""


def read_ahead(tokenizer: Path) -> None:
    """Read a tokenizer for the first `Chunker` that is made with it: that of the model takes a quarter of a second."""
    if tokenizer not in _ahead:
        _ahead[tokenizer] = _read(tokenizer)


def _read(tokenizer: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # tokenizers raises no narrower class
        raise EngineError(f"{tokenizer} cannot be read as a tokenizer: {error}") from None


def _chunks(text: str, offsets: Sequence[tuple[int, int]], whole: int, room: int) -> list[tuple[int, int]]:
    """(start, end) of chunks of a token sequence: one of up to `whole`, else several of up to `room` tokens.

    `offsets` are the tokens' places in `text`. Chunks have nearly the same length.
    """
    total = len(offsets)
    if total <= whole:
        return [(0, total)]
    ends = [0]
    for left in range(math.ceil(total / room), 1, -1):
        start = ends[-1]
        length = math.ceil((total - start) / left)
        reach = length // _REACH
        first = max(start + length - reach, total - (left - 1) * room)
        last = min(start + length + reach, start + room)
        near = sorted(range(first, last + 1), key=lambda end, equal=start + length: abs(end - equal))
        ends.append(max(near, key=lambda end: _rank(text, offsets, end)))
    return list(zip(ends, [*ends[1:], total], strict=True))


def _rank(text: str, offsets: Sequence[tuple[int, int]], end: int) -> int:
    """How good a place before token `end` is to cut at; -1 within a character."""
    before, after = offsets[end - 1][1], offsets[end][0]
    if after < before:
        return -1
    so_far, follows = text[after - 1 : after], text[after : after + 1]
    if so_far == "\n":
        return 3
    if so_far in _SENTENCE_ENDS and follows.isspace():
        return 2
    return int(so_far.isspace() or follows.isspace())
