"""Measure how much of known text is lost or changed by `kopub export --markdown`.

    python -m tools.documents_cer SOURCE FOLDER

SOURCE is the indexed corpus, as `kopub evaluate texts` takes it; FOLDER is the export. The error rates of the regions'
text and of the files count characters without blanks, pooled over the pages. Running heads, feet and page numbers,
which the files omit, are omitted from the regions' text, too.
"""

import argparse
import re
from html import unescape
from pathlib import Path

from markdown_it import MarkdownIt

from kopub.config.settings import load_settings
from kopub.documents.headings import find_furniture
from kopub.documents.stream import Assembler
from kopub.evaluation.benchmark import PageText
from kopub.evaluation.benchmarks.texts import known_text, load_texts
from kopub.evaluation.characters import character_errors, pooled
from kopub.recognition.regions import RegionText
from kopub.texts.markdown import page_text

_MARK = re.compile(r"<!-- page (\d+)[^>]*-->")


def main(source: Path, folder: Path) -> None:
    gold = known_texts(source)
    settings = load_settings()
    regions, files, shares = [], [], []
    for document in Assembler(settings.store, settings.corpus.manifest.keys).read():
        written = _pages((folder / f"{document.name}.md").read_text("utf-8"))
        out = find_furniture(document.pages)
        for page in document.pages:
            texts = [
                RegionText(region.index, region.label, region.content or "", region.state)
                for region in page.regions
                if region.state is not None and (page.number, region.index) not in out
            ]
            known = gold.get(page.page_id)
            if known:
                regions.append(character_errors(known, page_text(texts)))
                files.append(character_errors(known, written[page.number]))
                shares.append((files[-1].rate - regions[-1].rate, page.page_id))
    print(f"{len(files)} pages: regions {pooled(regions):.4f}, files {pooled(files):.4f}")
    print(f"difference {100 * (pooled(files) - pooled(regions)):+.2f} points; the worst pages:")
    for share, page_id in sorted(shares, reverse=True)[:5]:
        print(f"  {100 * share:+.2f}  {page_id}")


def known_texts(source: Path) -> dict[str, str]:
    """Return the known texts of a corpus by page id."""
    samples = load_texts(source).samples
    return {sample.id: known_text(sample.gold) for sample in samples if isinstance(sample.gold, PageText)}


def _pages(markdown: str) -> dict[int, str]:
    """Return the text of each page of a file, without markup."""
    parts = _MARK.split(markdown)
    return {int(number): _text(text) for number, text in zip(parts[1::2], parts[2::2], strict=True)}


def _text(markdown: str) -> str:
    html = MarkdownIt("commonmark").render(re.sub(r"!\[[^]]*\]\([^)]*\)", "", markdown))
    return unescape(re.sub(r"<[^<>]*>", " ", html))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    main(**vars(parser.parse_args()))
