"""Train the network for page orientation.

    python -m tools.train_orientation FONTS TEXTS...

FONTS is a folder with fonts of Hangul and Latin letters (Debian's fonts-nanum, fonts-unfonts-core, fonts-baekmuk,
fonts-noto-cjk, fonts-dejavu-core and fonts-liberation unpacked); TEXTS are files whose words are printed. Pages are
drawn with known text, so no real page is needed and every real page can be a test
(`kopub evaluate transformed`). Seeds are fixed; training takes a minute on a card, an hour on a CPU. Needs
torch. Writes `kopub/pages/orientation.npz`.
"""

import argparse
import random
import re
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from kopub.pages.orientation import WINDOW, WINDOWS, cut_windows, find_marks

PAGES = 4500
WINDOWS_A_PAGE = 20
EPOCHS = 60
BATCH = 512
_HANGUL = [chr(code) for code in range(0xAC00, 0xD7A4)]
_HELD_OUT = 10
"""One of this many pages is held out from training."""


def main(fonts: Path, texts: Sequence[Path]) -> None:
    """Train on drawn pages, print the accuracy by page and window, and write the weights."""
    words = sorted({word for path in texts for word in path.read_text("utf-8").split() if len(word) < 20})
    faces = _faces(fonts)
    print(f"{len(faces)} fonts, {len(words)} words")
    cut = [_page(number, faces, words) for number in range(PAGES)]
    pages = [page for page in cut if page is not None]
    held, train = pages[::_HELD_OUT], np.concatenate([page for at, page in enumerate(pages) if at % _HELD_OUT])
    print(f"{len(train)} windows of {len(pages) - len(held)} pages")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = _train(torch.from_numpy(train).to(device))
    with torch.no_grad():
        scores = [_logits(network, torch.from_numpy(page).to(device)).log_softmax(1).cpu() for page in held]
    windows = torch.cat(scores).argmax(1).eq(0).double().mean()
    whole = sum(int(score.sum(0).argmax()) == 0 for score in scores)
    print(f"held out: {whole} of {len(held)} pages, {float(windows):.3f} of windows")
    target = Path(__file__).parents[1] / "kopub/pages/orientation.npz"
    np.savez_compressed(target, allow_pickle=False, **_stored(network))
    print(f"{target}: {target.stat().st_size:,} bytes")


def _faces(fonts: Path) -> list[tuple[Path, bool]]:
    """Return the fonts, and whether each has Hangul."""
    found = []
    for path in sorted(fonts.rglob("*.tt[cf]")):
        korean = ImageFont.truetype(str(path), 20)
        bare = korean.getmask("\uffff").getbbox()
        found.append((path, korean.getmask("한").getbbox() not in (None, bare)))
    return found


def _page(number: int, faces: Sequence[tuple[Path, bool]], words: Sequence[str]) -> "NDArray[np.float32] | None":
    """Return the windows of a drawn page, or None if it has too few marks."""
    chance = random.Random(number)
    noise = np.random.default_rng(number)
    latin = chance.random() < 0.4
    path, hangul = chance.choice([face for face in faces if latin or face[1]])
    size = chance.randint(16, 44)
    font = ImageFont.truetype(str(path), size, index=0)
    ink, paper = chance.randint(0, 110), chance.randint(190, 255)
    page = Image.new("L", (chance.randint(500, 1200), chance.randint(500, 1200)), paper)
    draw = ImageDraw.Draw(page)
    pitch = size * chance.uniform(1.15, 2.2)
    y = chance.uniform(0, size)
    while y < page.height:
        line = _line(chance, words, hangul and not latin, page.width // (size // 2))
        draw.text((chance.uniform(-size, 3 * size), y), line, font=font, fill=ink)
        y += pitch * (1 if chance.random() < 0.9 else chance.uniform(1, 3))
    grey = np.asarray(page)
    grey = _disturbed(grey, chance, noise)
    marks = find_marks(grey)
    if len(marks.boxes) < 40:
        return None
    windows = cut_windows(marks, grey, WINDOWS)
    return windows[noise.permutation(len(windows))[:WINDOWS_A_PAGE]]


def _line(chance: random.Random, words: Sequence[str], hangul: bool, characters: int) -> str:
    """Return a line of random words, half from the texts, half made up, and numbers."""
    line: list[str] = []
    while sum(map(len, line)) < characters * chance.choice((0.4, 1, 1)):
        kind = chance.random()
        if kind < 0.1:
            line.append(f"{chance.uniform(0, 10 ** chance.randint(1, 5)):,.{chance.randint(0, 2)}f}")
        elif hangul and kind < 0.4:
            line.append("".join(chance.choices(_HANGUL, k=chance.randint(1, 6))))
        else:
            word = chance.choice(words)
            line.append(word if hangul else re.sub(r"[^\x20-\x7e]", "", word))
    return " ".join(line)


def _disturbed(grey: "NDArray[np.uint8]", chance: random.Random, noise: np.random.Generator) -> "NDArray[np.uint8]":
    """Return the page with the defects of a scanner, a camera or a JPEG."""
    if chance.random() < 0.6:
        turn = cv2.getRotationMatrix2D((grey.shape[1] / 2, grey.shape[0] / 2), chance.uniform(-1.5, 1.5), 1)
        grey = np.asarray(cv2.warpAffine(grey, turn, grey.shape[::-1], borderMode=cv2.BORDER_REPLICATE), np.uint8)
    if chance.random() < 0.5:
        grey = np.asarray(cv2.GaussianBlur(grey, (0, 0), chance.uniform(0.3, 1.6)), np.uint8)
    if chance.random() < 0.5:
        grey = (grey + noise.normal(0, chance.uniform(1, 14), grey.shape)).clip(0, 255).astype(np.uint8)
    if chance.random() < 0.2:
        grey = np.where(grey > chance.randint(120, 190), 255, 0).astype(np.uint8)
    if chance.random() < 0.4:
        _, coded = cv2.imencode(".jpg", grey, [cv2.IMWRITE_JPEG_QUALITY, chance.randint(25, 80)])
        grey = np.asarray(cv2.imdecode(coded, cv2.IMREAD_GRAYSCALE), np.uint8)
    return grey


def _train(windows: torch.Tensor) -> torch.nn.Sequential:
    """Return the network, trained to prefer upright windows to their quarter turns."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.3),
        torch.nn.LazyLinear(1),
    ).to(windows.device)
    _logits(network, windows[:2])
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=2e-2)
    steps = EPOCHS * (len(windows) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps)
    upright = torch.zeros(BATCH, dtype=torch.long, device=windows.device)
    for epoch in range(EPOCHS):
        total = 0.0
        order = torch.randperm(len(windows)).to(windows.device)
        for at in range(len(windows) // BATCH):
            chosen = windows[order[at * BATCH : (at + 1) * BATCH]]
            moved = torch.roll(chosen, torch.randint(-4, 5, (2,)).tolist(), (1, 2))
            logits = _logits(network, moved + torch.randn_like(moved) / 10)
            loss = torch.nn.functional.cross_entropy(logits, upright)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total / (len(windows) // BATCH):.4f}", flush=True)
    return network.eval()


def _logits(network: torch.nn.Module, windows: torch.Tensor) -> torch.Tensor:
    """Return a score for each quarter turn of each window, of shape (n, 4)."""
    turned = torch.stack([torch.rot90(windows, turns, (1, 2)) for turns in range(4)], 1)
    return network(turned.reshape(-1, 1, WINDOW, WINDOW)).reshape(-1, 4)


def _stored(network: torch.nn.Sequential) -> "dict[str, NDArray[np.float16]]":
    """Return the weights as `kopub.pages.orientation` needs them, channels last."""
    convolutions = [layer for layer in network if isinstance(layer, torch.nn.Conv2d)]
    stored = {}
    for at, layer in enumerate(convolutions):
        stored[f"conv{at}_weight"] = layer.weight.detach().permute(2, 3, 1, 0).cpu().numpy()
        stored[f"conv{at}_bias"] = layer.bias.detach().cpu().numpy() if layer.bias is not None else np.zeros(1)
    linear = network[-1]
    assert isinstance(linear, torch.nn.Linear)
    channels = convolutions[-1].out_channels
    side = int((linear.in_features / channels) ** 0.5)
    weight = linear.weight.detach().reshape(channels, side, side).permute(1, 2, 0).reshape(-1)
    stored["linear_weight"], stored["linear_bias"] = weight.cpu().numpy(), linear.bias.detach().cpu().numpy()
    return {name: value.astype(np.float16) for name, value in stored.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fonts", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    main(**vars(parser.parse_args()))
