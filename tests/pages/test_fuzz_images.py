"""A few hundred damaged pages; `python -m tests.pages.fuzz_images` tries forty thousand."""

from tests.pages.fuzz_images import SOUND, TAKEN, fuzz, look
from tests.support.sources.image_mutants import mutant, seeds

SEVERAL = {"PNG animated", "WEBP animated", "TIFF of several"}


def test_there_are_forty_seeds_and_each_is_a_page_unless_it_is_several() -> None:
    assert len(seeds()) == 40
    for name, data in seeds().items():
        outcome, detail = look(data)
        assert (outcome == TAKEN) == (name not in SEVERAL), (name, detail)
        assert (" holds 3 p" in detail) == (name in SEVERAL), (name, detail)


def test_a_mutant_is_the_same_every_time() -> None:
    assert mutant(12_345) == mutant(12_345)
    assert len({mutant(number)[1] for number in range(200)}) > 190


def test_no_mutant_raises_anything_but_undecodable_image() -> None:
    results = list(fuzz(range(600)))
    assert [result for result in results if result.outcome not in SOUND] == []
    assert sorted(result.number for result in results) == list(range(600))
    assert {result.outcome for result in results} == set(SOUND)
