"""`tools/mutants.yaml` keeps up with the code."""

from tools.mutants import problems, read_mutants


def test_every_mutant_has_one_place_in_the_code_and_tests_that_exist():
    assert not list(problems(read_mutants()))
