"""A list of profiles, of the readers that fit their cards, and of scores."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Column

from kopub.cli.console import print_json, print_table, said, say, table_console
from kopub.config.environment import read_environment
from kopub.config.profile_files import find_profile, known_profiles, known_readers, published_reader
from kopub.config.settings import read_settings
from kopub.doctor.checks import advise
from kopub.errors import ConfigError
from kopub.evaluation.home import EVALUATIONS
from kopub.evaluation.reading_scores import Row, headline, verdict
from kopub.gpu import largest_card
from kopub.states import phrase
from kopub.store.table_store import ShardStore

_MEASURED, _ESTIMATED, _TOO_LARGE = "measured", "estimated", "does not fit"


def list_profiles(as_json: bool) -> None:
    """Print the profiles, and whether each reader fits each card."""
    environment = read_environment(os.environ)
    all_profiles = list(map(find_profile, known_profiles()))
    rows: list[dict[str, Any]] = []
    cells: list[list[str]] = []
    for profile in all_profiles:
        card, sections = profile.card, profile.sections
        layout, reader, vectors = (sections[name]["engine"] for name in ("layout", "recognition", "embedding"))
        # Figures without a card are for a laptop's CPU.
        measured = card is None or card.measured
        rows.append(
            {
                "profile": profile.name,
                "card": card and card.gpu,
                "memory_gb": card and card.memory_gb,
                "layout": layout,
                "reader": reader,
                "vectors": vectors,
                "measured": measured,
            }
        )
        gpu = said("none") if card is None else f"{card.gpu}, {card.memory_gb:.0f} GB"
        cells.append([profile.name, gpu, layout, reader, vectors, said(_MEASURED if measured else _ESTIMATED)])
    readers = {name: published_reader(name) for name in known_readers()}
    # The first profile of each card stands for it.
    cards = {profile.card.gpu: profile for profile in reversed(all_profiles) if profile.card}
    memory = {profile.name: profile.card.memory_gb for profile in cards.values() if profile.card}
    combinations: list[dict[str, Any]] = []
    fits: list[list[str]] = []
    for card in sorted(memory, key=lambda name: (memory[name], name)):
        line = [card]
        for reader in readers:
            name, speed, refused = f"{card}+{reader}", _ESTIMATED, ""
            try:
                chosen = read_settings({"KOPUB_PROFILE": name}).card
                if chosen is not None and chosen.measured:
                    speed = _MEASURED
            except ConfigError as error:
                speed, refused = _TOO_LARGE, str(error)
            combinations.append({"profile": name, "reader": reader, "speed": speed, "says": refused})
            line.append(said(speed))
        fits.append(line)
    own = list(_own_scores(environment.home))
    if as_json:
        published = {name: reader.model_dump() for name, reader in readers.items()}
        print_json({
            "profiles": rows, "readers": list(readers), "published": published, "combinations": combinations,
            "evaluated_here": own,
        })  # fmt: skip
        return
    out = table_console()
    columns = [Column(name) for name in ("profile", "card", "layout", "reader", "vectors", "speed")]
    print_table(out, columns, cells)
    say(out, phrase("in use here: {profile}", environment.profile))
    out.print()
    say(out, "with another reader on a card, as --profile rtx4090+paddleocr_vl:")
    print_table(out, [Column(name) for name in ("card", *readers)], fits)
    of_regions = [name for name, reader in readers.items() if reader.reads == "regions"]
    ranked = sorted(of_regions, key=lambda name: -readers[name].korean)
    say(out, phrase("for Korean: +{reader}, until your own pages say otherwise. MDPBench, Korean:", ranked[0]))
    scores = ", ".join(f"{name} {readers[name].korean:g}" for name in ranked)
    say(out, phrase("  {scores} (most pages are photographs)", scores))
    for line in own or [f"  kopub evaluate texts FOLDER --profile rtx4090 --profile rtx4090+{ranked[0]}"]:
        say(out, line)
    if own_card := largest_card():
        say(out, phrase("this machine: {card}: {reason}", own_card, advise(own_card)))
    say(out, "from a card to a run: docs/gpu.md")


def _own_scores(home: Path) -> Iterator[str]:
    """Yield a line for each evaluation here that compares profiles."""
    for place in sorted((home / EVALUATIONS).glob("*/*/profiles")):
        scores: dict[str, list[Row]] = {}
        for store in sorted(place.glob("*/store")):
            if (last := verdict(ShardStore(url=str(store)))) is not None:
                scores[store.parent.name] = headline(last.scores)
        if len(scores) > 1:
            lines: list[str] = []
            for name, rows in scores.items():
                shown = ", ".join(f"{row['metric']} {row['value']:.3f}" for row in rows)
                lines.append(f"{name} {shown}")
            evaluation = f"{place.parent.parent.name}/{place.parent.name}"
            yield phrase("your evaluation {evaluation}: {scores}", evaluation, "; ".join(lines))
