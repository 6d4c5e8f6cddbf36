"""A run reports the same failure once."""

from kopub_assets.running.execution import join_failures


def test_what_fails_alike_everywhere_is_one_line():
    away = "cannot be written, there is no such bucket: make it, or correct store.url"
    lines = [
        f"{asset}: {shard}: b/store/{asset}/{shard} {away}"
        for asset in ("a", "b")
        for shard in ("shard_00", "shard_01")
    ]
    other = "a: shard_02: no memory is left"
    assert join_failures([*lines, other]) == [f"{lines[0]} (and 3 others like it)", other]
