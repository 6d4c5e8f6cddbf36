"""Build the wheel `kopub-tessdata`, the data of Tesseract: `python -m tools.tessdata_wheel --out dist`.

Korean and English for KoPub, orientation for Tesseract's own command: those of tessdata_fast 4.1.0, from this machine
or a folder, and checked by their hashes.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kopub.config.settings import ROOT
from kopub.recognition.tesseract.recognizer import tessdata_folder

HASHES = {
    "kor": "6b85e11d9bbf07863b97b3523b1b112844c43e713df8b66418a081fd1060b3b2",
    "eng": "7d4322bd2a7749724879683fc3912cb542f19906c83bcc1a52132556427170b2",
    "osd": "9cf5d576fcc47564f11265841e5ca839001e7e6f38ff7f7aacf46d15a96b00ff",
}
_PROJECT = """\
[project]
name = "kopub-tessdata"
version = "4.1.0"
description = "Tesseract's Korean, English and orientation data (tessdata_fast), where KoPub finds them"
readme = {text = '''Tesseract's data for Korean, English and the orientation of pages: `kor`, `eng` and `osd` of
[tessdata_fast](https://github.com/tesseract-ocr/tessdata_fast) 4.1.0, unchanged, under Apache-2.0. They are installed
into `share/tessdata` of the environment, where KoPub looks first.
''', content-type = "text/markdown"}
license = "Apache-2.0"
license-files = ["LICENSE"]
urls = {Source = "https://github.com/tesseract-ocr/tessdata_fast"}
requires-python = ">=3"

[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
bypass-selection = true

[tool.hatch.build.targets.wheel.force-include]
tessdata = "kopub_tessdata-4.1.0.data/data/share/tessdata"
"""


def build(data: Path, out: Path) -> Path:
    """Return the wheel of the data in a folder. Exits with one line if they are others."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        (project / "tessdata").mkdir()
        (project / "pyproject.toml").write_text(_PROJECT)
        shutil.copy(ROOT / "LICENSE", project)
        for name, sha256 in HASHES.items():
            file = data / f"{name}.traineddata"
            if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != sha256:
                sys.exit(
                    f"{file} is not that of tessdata_fast 4.1.0: fetch it from github.com/tesseract-ocr/tessdata_fast"
                )
            shutil.copy(file, project / "tessdata")
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out.resolve()]
        subprocess.run(command, cwd=project, stdout=subprocess.DEVNULL, check=True)
    return next(out.glob("kopub_tessdata-*.whl"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="The folder of the data, by default Tesseract's of this machine.")
    parser.add_argument("--out", type=Path, default=Path("dist"), help="The folder of the wheel.")
    chosen = parser.parse_args()
    print(build(chosen.data or Path(tessdata_folder()), chosen.out))


if __name__ == "__main__":
    main()
