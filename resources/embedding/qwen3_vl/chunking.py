"""Texts as the tokens of requests, and long ones in passages: nothing is cut off. Pure; the tokenizer is a file."""

import math
from collections.abc import Sequence
from pathlib import Path

from resources.errors import EngineError

_TURN = "<|im_start|>"
_HEAD = f"{_TURN}system\n{{instruction}}<|im_end|>\n{_TURN}"
_START = "user\n"
_TAIL = f"<|im_end|>\n{_TURN}assistant\n"
_REACH = 8
"""A cut lies within this part of a passage from where equal passages would end."""
_PICTURE_MARKS = 2
"""Of its start and its end."""
_SENTENCE_ENDS = ".?!。"


class Passages:
    """Requests of texts below one instruction, of at most `most` tokens each, template included.

    The template is the one that the model's authors embed with. Special tokens spelt out in a text
    are text, so that no page can end its turn. Raises `EngineError` for a tokenizer of another kind.
    """

    def __init__(self, tokenizer: Path, instruction: str, most: int) -> None:
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
        except Exception as error:  # tokenizers raises no narrower class
            raise EngineError(f"{tokenizer} cannot be read as a tokenizer: {error}") from None
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
        # What it adds to every prompt is the token that the vector is read at.
        self._tail = [*tail, *whole[len(core) :]]
        self._room = most - len(self._head) - len(self._start) - len(self._tail)
        if self._room < 1:
            raise EngineError(f"max_tokens: {most} leave no room beside the instruction of {len(head)} characters")
        self._tokenizer.encode_special_tokens = True

    def of(self, text: str) -> list[list[int]]:
        """The prompts of a text: one, or as few as hold it all, of nearly the same length, cut between sentences."""
        turn = _START + text
        encoded = self._tokenizer.encode(turn, add_special_tokens=False)
        parts = [slice(*ends) for ends in _parts(turn, encoded.offsets, self._room + len(self._start), self._room)]
        opened = [encoded.ids[part] if part.start == 0 else [*self._start, *encoded.ids[part]] for part in parts]
        return [[*self._head, *ids, *self._tail] for ids in opened]

    def around_a_picture(self) -> int:
        """Tokens of a prompt that holds a picture instead of a text, without the picture's own."""
        return len(self._head) + len(self._start) + _PICTURE_MARKS + len(self._tail)

    def _plain(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids


def _parts(text: str, offsets: Sequence[tuple[int, int]], whole: int, room: int) -> list[tuple[int, int]]:
    """(start, end) of parts of a token sequence: one of up to `whole`, else several of up to `room` tokens.

    `offsets` are the tokens' places in `text`.
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
