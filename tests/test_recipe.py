"""Fingerprints change with what changes results, and with nothing else."""

import pytest

from resources import recipe
from tests.engines import OneRegionLayout, SlowReader

CODE = '''
"""Docstring."""


def area(width, height):
    """What it is."""
    # why
    return width * height if width else f"none {height}"
'''


@pytest.mark.parametrize(
    "same",
    [
        CODE.replace("# why", "# because"),
        CODE.replace('    """What it is."""\n', ""),
        CODE.replace("width * height", "width*height"),
        CODE.replace("(width, height)", "(\n    width,\n    height\n)"),
        CODE + "\n\n",
    ],
)
def test_comments_docstrings_and_layout_do_not_count(same: str):
    assert recipe._normalised(same) == recipe._normalised(CODE)


@pytest.mark.parametrize(
    "other",
    [
        CODE.replace("width * height", "width + height"),
        CODE.replace("none", "nothing"),
        CODE.replace("    return", "    width = 1\n    return"),
        CODE.replace("if width else", "if height else"),
    ],
)
def test_code_counts(other: str):
    assert recipe._normalised(other) != recipe._normalised(CODE)


def test_a_block_that_ends_earlier_is_other_code():
    assert recipe._normalised("if a:\n    b()\n    c()\n") != recipe._normalised("if a:\n    b()\nc()\n")


def test_every_module_of_every_recipe_exists():
    from kopub_assets.recipes import CODE, PARENTS
    from resources.settings import load_settings

    assert list(CODE) == list(PARENTS)
    settings = load_settings()
    for modules in CODE.values():
        assert recipe.code_fingerprint(modules)
    for engine in (settings.layout, settings.recognition, settings.embedding):
        assert engine.code, f"{type(engine).__name__} names no module that shapes its results"
        assert recipe.code_fingerprint(engine.code)


def test_a_parameter_counts_unless_it_only_changes_the_speed():
    assert OneRegionLayout(diary="d").recipe() != OneRegionLayout(diary="d", revision="r2").recipe()
    assert SlowReader(diary="d").recipe() == SlowReader(diary="d", seconds=2.0).recipe()
    assert SlowReader(diary="d").recipe() != SlowReader(diary="d", prompt="say").recipe()
