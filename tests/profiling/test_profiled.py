"""What `kopub profile` says of the cards and of the steps inside OCR."""

import subprocess
import sys
from pathlib import Path

import pytest

from kopub_cli.display.profiled import Profiled, tables
from resources.config.settings import load_settings
from resources.gpu.cards import Card, Reading
from resources.gpu.sampler import GIB, Readings
from resources.profiling.observer import Observations
from resources.profiling.report import Stage, report
from resources.profiling.timeline import Limit, Span
from resources.recognition.step_times import FILE, step_times


def test_the_cards_have_mean_median_and_most_of_each_figure():
    taken = [
        (float(at), (Reading(busy, busy / 2, memory * GIB, 3600.0 * at),))
        for at, (busy, memory) in enumerate([(0.2, 1), (0.4, 2), (0.9, 6)])
    ]
    observed = Observations(cards=[Card("0", "one", 8 * GIB, None)], readings=Readings(taken))
    stages = [Stage("ocr_results", Span(0.0, 2.0)), Stage("parsed_texts", Span(5.0, 6.0))]
    found = Profiled(
        pages=1,
        profile="mine",
        run=report(Span(0.0, 6.0), stages, observed),
        observed=observed,
        limits={stage.name: Limit("", "") for stage in stages},
        settings=load_settings(),
        steps=(),
        slow_pages=(),
        slow_regions=(),
    )
    (_, cards) = tables(found)
    assert [list(row) for row in cards.rows] == [
        ["ocr_results", "50%, 40%, 90%", "25%, 20%, 45%", "3.0, 2.0, 6.0", "2.00"],
        ["parsed_texts", "-", "-", "-", "-"],
    ]


def test_each_call_of_a_step_is_kept_while_somebody_watches_and_not_otherwise(tmp_path: Path):
    program = "from resources.recognition.step_times import keep; [keep('request', n / 100) for n in range(1, 101)]"
    for file in ("", str(tmp_path / "steps")):
        subprocess.run([sys.executable, "-c", program], env={FILE: file}, cwd=Path(__file__).parents[2], check=True)
        assert [path.name for path in tmp_path.iterdir()] == ([Path(file).name] if file else [])
    (step,) = step_times(tmp_path / "steps")
    assert (step.step, step.calls, step.share) == ("request", 100, 1.0)
    assert (step.mean, step.p50, step.p95) == pytest.approx((0.505, 0.505, 0.9505))
    assert step_times(tmp_path / "none") == []
