"""Measure which bad texts of Korean pages are found, and which good ones are doubted.

    python -m benchmarks.reading.text_quality [CORPUS ...] [--store STORE] [--texts FILE ...]

CORPUS is a folder with Arrow shards whose `text` column is the truth (default: the samples). Each
kind of damage is done to the whole text of every page, and to 30 % of its lines. With STORE, the
folder of the tables made from the last corpus, the texts that an engine read are checked, too, with
the boxes of their regions, as is damage to the regions. FILE is text that must not be doubted, with
pages separated by form feeds (as pdftotext writes them) or else cut into pieces.
"""

import argparse
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from kopub.recognition.regions import region_texts
from kopub.tables.ocr_and_texts import boxes_of
from kopub.texts.markdown import page_text
from kopub.texts.text_quality import DOUBTFUL, JudgedRegion, doubts, total

ROOT = Path(__file__).resolve().parents[2]
SHARE = 0.3
PIECE = 1500
HANGUL = re.compile("[가-힣]")
Region = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="*", type=Path, default=[ROOT / "samples"])
    parser.add_argument("--store", type=Path, help="tables made from the last corpus")
    parser.add_argument("--texts", type=Path, nargs="*", default=[], help="files of sound text")
    arguments = parser.parse_args()
    console = Console()
    texts = [(row["id"], row["text"] or "") for corpus in arguments.corpus for row in read_pages(corpus)]
    false_alarms(console, "the text layer", [(page, text, ()) for page, text in texts])
    console.print(recall(texts))
    if arguments.texts:
        pieces = [piece for path in arguments.texts for piece in pieces_of(path)]
        false_alarms(console, "other texts", [(name, text, ()) for name, text in pieces])
    if arguments.store:
        files = sorted(arguments.store.glob("ocr_results/*.parquet"))
        pages = [row for file in files for row in pq.read_table(file, columns=["page_id", "regions"]).to_pylist()]
        read = [(page["page_id"], text_of(page["regions"]), boxes_of(page["regions"])) for page in pages]
        false_alarms(console, "what was read", read)
        console.print(region_recall([page["regions"] for page in pages]))


def read_pages(corpus: Path) -> list[dict[str, Any]]:
    """Return the rows of the Arrow files in the folder or its `corpus/`, without images."""
    folder = corpus / "corpus" if (corpus / "corpus").is_dir() else corpus
    files = sorted(folder.glob("*.arrow"))
    if not files:
        raise SystemExit(f"{folder} holds no .arrow file")
    tables = (pa.ipc.open_stream(pa.memory_map(str(file))).read_all().select(["id", "text"]) for file in files)
    return [row for table in tables for row in table.to_pylist()]


def pieces_of(path: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text("utf-8", "replace")
    pages = text.split("\f") if "\f" in text else [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    return ((f"{path.name} {number}", page) for number, page in enumerate(pages, start=1))


def text_of(regions: Sequence[Region]) -> str:
    return page_text(region_texts(regions))


def false_alarms(console: Console, what: str, pages: Sequence[tuple[str, str, Sequence[JudgedRegion]]]) -> None:
    started = time.process_time()
    found = [(page, doubts(text, boxes)) for page, text, boxes in pages]
    spent = time.process_time() - started
    wrong = [(page, signs) for page, signs in found if total(signs) >= DOUBTFUL]
    console.print(f"{what}: {len(wrong)} of {len(pages)} pages doubted, {1000 * spent / len(pages):.1f} CPU ms a page")
    for page, signs in sorted(found, key=lambda item: -total(item[1]))[:10]:
        if signs:
            console.print(f"  {page} {total(signs):.2f}: {'; '.join(sign.says for sign in signs)}", markup=False)


def recall(texts: Sequence[tuple[str, str]]) -> Table:
    """Return how much damage is found, on pages with at least 100 syllables.

    Damage to Korean only shows on such pages.
    """
    korean = [text for _, text in texts if len(HANGUL.findall(text)) >= 100]
    table = Table("damage", "whole text", f"{SHARE:.0%} of the lines", title=f"{len(korean)} pages with Hangul")
    for name, damage in DAMAGE.items():
        chance = random.Random(0)
        whole = sum(total(doubts(damage(text, chance))) >= DOUBTFUL for text in korean)
        part = sum(total(doubts(on_lines(text, damage, chance))) >= DOUBTFUL for text in korean)
        table.add_row(name, f"{whole / len(korean):.3f}", f"{part / len(korean):.3f}")
    return table


def region_recall(pages: Sequence[Sequence[Region]]) -> Table:
    full = [regions for regions in pages if len(text_of(regions)) >= 300]
    table = Table("damage to regions", "found", title=f"{len(full)} pages of at least 300 characters")
    for name, damage in REGION_DAMAGE.items():
        found = 0
        for regions in full:
            bad = damage([dict(region) for region in regions])
            found += total(doubts(text_of(bad), boxes_of(bad))) >= DOUBTFUL
        table.add_row(name, f"{found / len(full):.3f}")
    return table


def on_lines(text: str, damage: Callable[[str, random.Random], str], chance: random.Random) -> str:
    """Return the text with damage to adjacent lines that have `SHARE` of the characters."""
    lines = text.splitlines(keepends=True)
    start = chance.randrange(max(1, int(len(lines) * (1 - SHARE))))
    end, size = start, 0
    while end < len(lines) and size < SHARE * len(text):
        size += len(lines[end])
        end += 1
    return "".join(lines[:start]) + damage("".join(lines[start:end]), chance) + "".join(lines[end:])


def misread(text: str, chance: random.Random) -> str:
    """Replace syllables as an English engine reads them: by capitals and a few small letters."""
    tails = ("", "", "S", "o", "t", "A", "l", "a")
    return HANGUL.sub(lambda _: chance.choice("ASOLEHCTBUSAVZ") + chance.choice(tails), text)


def cut_bytes(text: str, chance: random.Random) -> str:
    """Drop one byte in twenty before decoding."""
    return bytes(byte for byte in text.encode() if chance.random() > 0.05).decode("utf-8", "replace")


def from_range(first: int, last: int) -> Callable[[str, random.Random], str]:
    """Return a function that replaces every syllable by a random character of a range."""
    return lambda text, chance: HANGUL.sub(lambda _: chr(chance.randrange(first, last)), text)


def letters(text: str, chance: random.Random) -> str:
    """Replace one syllable in five by its single letters."""
    leads, vowels = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ", "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"

    def apart(match: re.Match[str]) -> str:
        at = ord(match[0]) - ord("가")
        return leads[at // 588] + vowels[at % 588 // 28] if chance.random() < 0.2 else match[0]

    return HANGUL.sub(apart, text)


def loop(text: str, chance: random.Random) -> str:
    """Repeat the end of the first third until the text has its former length."""
    start = text[: max(60, len(text) // 3)]
    return start + start[-60:] * ((len(text) - len(start)) // 60 + 5)


def counting_loop(text: str, chance: random.Random) -> str:
    """Repeat the same as `loop`, with a number that increases each time."""
    start = text[: max(60, len(text) // 3)]
    return start + "".join(f"\n{at}. {start[-60:]}" for at in range((len(text) - len(start)) // 60 + 5))


DAMAGE: dict[str, Callable[[str, random.Random], str]] = {
    "UTF-8 read as Latin-1": lambda text, _: text.encode().decode("latin-1"),
    "UTF-8 read as Windows-1252": lambda text, _: text.encode().decode("cp1252", "replace"),
    "EUC-KR read as Latin-1": lambda text, _: text.encode("cp949", "replace").decode("latin-1"),
    "UTF-8 read as CP949": lambda text, _: text.encode().decode("cp949", "replace"),
    "bytes lost": cut_bytes,
    "syllables as letters": letters,
    "Hangul left out": lambda text, _: HANGUL.sub("", text),
    "Hangul misread as Latin": misread,
    "Hangul as Chinese characters": from_range(0x4E00, 0x9FA5),
    "Hangul as Kana": from_range(0x3042, 0x3093),
    "Hangul as Cyrillic": from_range(0x430, 0x44F),
    "random syllables": from_range(0xAC00, 0xD7A3),
    "loop": loop,
    "loop that counts": counting_loop,
}


def _largest(regions: list[Region]) -> Region:
    return max(regions, key=lambda region: len(region["content"] or ""))


def _shortened(share: float) -> Callable[[list[Region]], list[Region]]:
    def damage(regions: list[Region]) -> list[Region]:
        region = _largest(regions)
        region["content"] = region["content"][: int(share * len(region["content"]))]
        return regions

    return damage


def _empty_from(share: float) -> Callable[[list[Region]], list[Region]]:
    def damage(regions: list[Region]) -> list[Region]:
        left = share * len(text_of(regions))
        for region in regions:
            left -= len(region["content"] or "")
            region["content"] = region["content"] if left >= 0 else ""
        return regions

    return damage


def _cut_off(regions: list[Region]) -> list[Region]:
    _largest(regions)["finish_reason"] = "length"
    return regions


REGION_DAMAGE: dict[str, Callable[[list[Region]], list[Region]]] = {
    "nothing read": _empty_from(0),
    "all after the first third empty": _empty_from(1 / 3),
    "largest region empty": _shortened(0),
    "largest region cut to 10 %": _shortened(0.1),
    "largest region cut to 25 %": _shortened(0.25),
    "largest region cut to 50 %": _shortened(0.5),
    "answer ended for its length": _cut_off,
}


if __name__ == "__main__":
    main()
