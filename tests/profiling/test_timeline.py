"""The arithmetic of a run's time: from busy shares and stages to where the seconds went."""

import pytest

from resources.gpu.sampler import Readings
from resources.profiling.observer import Observations, ServerHistory
from resources.profiling.picture import Table, render, section
from resources.profiling.report import Stage, first_answer, report
from resources.profiling.timeline import (
    Activity,
    Span,
    Split,
    activities,
    busy_share,
    gaps,
    idle_between,
    longest_gap_at,
    split,
    steady_rate,
)

STEP = 0.1


def busy(*parts: tuple[float, float]) -> list[Activity]:
    """(seconds, busy share) one after the other from time 0, sampled as a run is."""
    samples, at = [(0.0, 0.0)], 0.0
    for seconds, share in parts:
        for _ in range(round(seconds / STEP)):
            at += STEP
            samples.append((round(at, 3), share))
    return activities(samples)


def rounded(found: Split) -> list[float]:
    return [round(seconds, 1) for seconds in found]


def test_a_sample_speaks_for_the_time_before_it():
    assert activities([(1.0, 0.9), (2.0, 0.5), (2.5, 0.1)]) == [Activity(1.0, 2.0, 0.5), Activity(2.0, 2.5, 0.1)]
    assert activities([]) == []


def test_the_seconds_of_a_stage_add_up():
    steps = busy((4, 0.0), (3, 0.5), (10, 1.0), (2, 0.3), (1, 0.0))
    found = split(steps, Span(0.0, 20.0))
    assert found.seconds == pytest.approx(20.0)
    assert rounded(found)[0] == 4.0  # starting
    assert found.ramping == pytest.approx(3.0, abs=0.5)
    assert found.working == pytest.approx(10.0, abs=0.5)
    assert found.draining == pytest.approx(2.0, abs=0.5)
    assert rounded(found)[5] == 1.0  # platform


def test_gaps_under_load_are_waiting():
    steps = busy((5, 1.0), (2, 0.0), (5, 1.0))
    assert rounded(split(steps, Span(0.0, 12.0))) == [0.0, 0.0, 10.0, 2.0, 0.0, 0.0]
    half = busy((10, 0.6))
    assert rounded(split(half, Span(0.0, 10.0))) == [0.0, 0.0, 6.0, 4.0, 0.0, 0.0]


def test_a_stage_without_work_on_the_device_is_all_platform():
    assert rounded(split(busy((5, 0.02)), Span(1.0, 4.0))) == [0.0, 0.0, 0.0, 0.0, 0.0, 3.0]


def test_a_stage_sees_only_its_own_time():
    steps = busy((5, 1.0), (5, 0.0), (5, 1.0))
    assert rounded(split(steps, Span(6.0, 15.0))) == [4.0, 0.0, 5.0, 0.0, 0.0, 0.0]
    assert busy_share(steps, Span(0.0, 20.0)) == pytest.approx(0.5)


def test_times_without_work_between_stages_and_shards():
    steps = busy((3, 1.0), (2, 0.0), (3, 1.0), (6, 0.0), (2, 1.0))
    first, second = Span(0.0, 9.0), Span(9.0, 16.0)
    assert idle_between(steps, first, second) == pytest.approx(6.0)
    assert longest_gap_at(steps, 4.0, first) == pytest.approx(2.0)
    assert longest_gap_at(steps, 1.0, Span(0.0, 3.0)) == 0.0
    assert [round(gap.seconds, 1) for gap in gaps(steps, Span(0.0, 16.0))] == [2.0, 6.0]


def test_the_steady_rate_leaves_out_the_ends():
    slow, fast = [(float(at), at * 1.0) for at in range(16)], [(15.0 + at, 15.0 + 10.0 * at) for at in range(1, 8)]
    tail = [(22.0 + at, 85.0 + at) for at in range(1, 16)]
    assert steady_rate([*slow, *fast, *tail]) == pytest.approx(10.0)
    assert steady_rate([(0.0, 5.0), (1.0, 5.0)]) is None
    assert steady_rate([]) is None


def observed() -> Observations:
    """A run of 20 s: a server that starts for 4 s and answers 80 requests from 6 to 14 s, with the cores busy then."""
    cores = [(at * STEP, 1.0 if 6 < at * STEP <= 14 else 0.0) for at in range(201)]
    requests = [(4.0 + at * 0.5, max(0.0, min(80.0, 10 * (at * 0.5 - 2)))) for at in range(33)]
    server = ServerHistory("org/model", starts=[Span(0.0, 4.0)], requests=requests)
    return Observations(no_gpu="none here", readings=Readings(), cores=cores, servers={"key": server})


def test_a_report_of_a_run():
    stages = [
        Stage("made", Span(5.0, 15.0), shards={"a": 10.0, "b": 14.5}, computed=40),
        Stage("written", Span(15.0, 18.0), computed=40),
    ]
    found = report(Span(0.0, 20.0), stages, observed(), {"made": "key"})
    made, written = found.stages
    assert (found.loading, found.between, found.ending) == (5.0, 0.0, 2.0)
    assert found.device == "cores"
    assert found.busy == pytest.approx(8 / 20, abs=0.02)
    assert rounded(made.split) == [1.0, 0.0, 8.0, 0.0, 0.0, 1.0]
    assert rounded(written.split) == [0.0, 0.0, 0.0, 0.0, 0.0, 3.0]
    assert (made.rate, made.requests) == (4.0, 80.0)
    assert made.steady == pytest.approx(5.0)  # 10 requests a second, two of them a page
    assert list(made.gaps) == [0.0]
    assert made.busy is None


def test_it_is_told_when_the_host_had_other_work_for_the_cores():
    seen = observed()
    assert report(Span(0.0, 20.0), [], seen).slowed == ""
    seen.stolen = [(at * STEP, 0.3 if at * STEP <= 5 else 0.0) for at in range(201)]
    found = report(Span(0.0, 20.0), [Stage("made", Span(0.0, 5.0)), Stage("written", Span(6.0, 20.0))], seen)
    assert [each.stolen for each in found.stages] == [pytest.approx(0.3), 0.0]
    assert found.slowed == "the host of this virtual machine had other work for 8% of the cores"


def test_an_answer_counts_for_one_of_two_stages_however_late_the_server_tells_its_count():
    # Ten a second from 0 to 8 s, then thirty; nothing is told from 6 to 10 s, while the second stage begins.
    looks = [(0.0, 0.0), *((float(at), 10.0 * at) for at in range(1, 7)), (10.0, 140.0), (12.0, 200.0), (13.0, 200.0)]
    seen = Observations(servers={"key": ServerHistory("org/model", requests=looks)})
    stages = [Stage("slow", Span(0.0, 8.0), computed=80), Stage("fast", Span(8.0, 12.0), computed=120)]
    slow, fast = report(Span(0.0, 12.0), stages, seen, {"slow": "key", "fast": "key"}).stages
    assert slow.requests + fast.requests == 200
    assert slow.requests == pytest.approx(80, abs=20)


def test_stages_side_by_side_are_counted_once_between_them():
    stages = [Stage("a", Span(1.0, 8.0)), Stage("b", Span(2.0, 6.0)), Stage("c", Span(10.0, 12.0))]
    assert report(Span(0.0, 12.0), stages, Observations()).between == pytest.approx(2.0)


def test_the_first_answer_is_none_of_those_before_the_server_was_seen():
    history = ServerHistory("m", requests=[(1.0, 3.0), (2.0, 3.0), (3.0, 9.0)])
    assert first_answer(history) == 3.0
    assert first_answer(ServerHistory("m")) is None


def test_the_page_holds_everything_itself():
    stages = [Stage("made <b>", Span(5.0, 15.0), shards={"a": 10.0}, computed=40)]
    seen = observed()
    run = report(Span(0.0, 20.0), stages, seen, {"made <b>": "key"})
    page = render("A run", [section("Run", run, seen, [Table("t", ["", "n"], [("<x>", "1")])], ["a line"])])
    assert "made &lt;b&gt;" in page
    assert "&lt;x&gt;" in page
    assert page.count("<polygon") == 2  # the answers a second, and the cores
    assert "ready after 4 s" in page
    assert not any(word in page for word in ("<script", "http://", "https://", "url(", "@import"))
