"""Which pages are read a second time: the first of a shard, whatever order their answers come in."""

from hypothesis import given
from hypothesis import strategies as st

from resources.deepseek_layout.detector import SecondTries
from resources.pages.page import Batch


def granted(tries: SecondTries, wanted: dict[int, bool], order: list[int]) -> set[int]:
    """The pages that get a second try; every page that wants one is decided on once."""
    decided = [decision for number in order for decision in tries.answered(number, wanted[number])]
    assert sorted(number for number, _ in decided) == sorted(number for number in wanted if wanted[number])
    return {number for number, yes in decided if yes}


@given(st.data())
def test_the_first_pages_of_each_shard_get_them_in_any_order_of_answers(data: st.DataObject):
    shards = data.draw(st.lists(st.lists(st.booleans(), min_size=1, max_size=12), min_size=1, max_size=3))
    share = data.draw(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]))
    tries, wanted, expected = SecondTries(share), dict[int, bool](), set[int]()
    for at, pages in enumerate(shards):
        numbers = range(len(wanted), len(wanted) + len(pages))
        for number, wants in zip(numbers, pages, strict=True):
            tries.began(number, Batch(f"shard_{at}", len(pages)))
            wanted[number] = wants
        most = max(1, int(share * len(pages))) if share else 0
        expected |= set([number for number in numbers if wanted[number]][:most])
    assert granted(tries, wanted, data.draw(st.permutations(list(wanted)))) == expected


@given(st.permutations(range(30)))
def test_pages_of_no_shard_count_those_before_them(order: list[int]):
    tries = SecondTries(0.1)
    for number in range(30):
        tries.began(number, None)
    assert granted(tries, dict.fromkeys(order, True), order) == {0, 19, 29}


def test_a_page_waits_only_for_what_can_change_its_turn():
    tries, batch = SecondTries(0.5), Batch("shard_00", 4)
    for number in range(4):
        tries.began(number, batch)
    assert tries.answered(1, True) == [(1, True)]  # it has one of the two whatever the first page says
    assert tries.answered(3, True) == []
    assert tries.answered(2, False) == []
    assert tries.answered(0, False) == [(3, True)]
