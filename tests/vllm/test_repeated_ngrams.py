"""What the plugin's guard against loops bans, against the definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.vllm.plugin.repeated_ngrams import repeating


def plainly(tokens: list[int], size: int, window: int, allowed: set[int]) -> set[int]:
    """Every n-gram that begins in the window and has a token after what the last tokens are equal to."""
    starts = range(max(0, len(tokens) - window), len(tokens) - size + 1)
    before = tuple(tokens[-(size - 1) :])
    ngrams = [tuple(tokens[start : start + size]) for start in starts]
    return {ngram[-1] for ngram in ngrams if ngram[:-1] == before} - allowed


# A few tokens, among them the -1 that stands for one not yet known, repeat often.
FEW = st.lists(st.integers(-1, 3), max_size=60)
LOOPS = st.builds(lambda start, part, times: start + part * times, FEW, FEW, st.integers(1, 6))


@given(FEW | LOOPS, st.integers(1, 8), st.integers(1, 70), st.sets(st.integers(-1, 3), max_size=3))
def test_it_bans_what_the_definition_says(tokens: list[int], size: int, window: int, allowed: set[int]) -> None:
    given_tokens = list(tokens)
    assert repeating(tokens, size, window, allowed) == plainly(tokens, size, window, allowed)
    assert tokens == given_tokens


@pytest.mark.parametrize("period", [1, 2, 30, 61])
def test_the_authors_setting_ends_a_loop_that_fits_their_window(period: int) -> None:
    loop = [number % period for number in range(1500)]
    assert repeating(loop, 30, 90, {128_821}) == {1500 % period}
    assert repeating(loop, 30, 90, {1500 % period}) == set()


def test_a_loop_longer_than_the_window_or_a_short_answer_is_free() -> None:
    assert repeating([number % 62 for number in range(1500)], 30, 90, set()) == set()
    assert repeating([7] * 29, 30, 90, set()) == set()
    assert repeating([7] * 30, 30, 90, set()) == {7}
