"""CDM, the character detection matching of drawn formulas, by an external command.

The official code needs TeX, Ghostscript, Node.js and an old scikit-image, and gives 0 for every formula if one of them
is missing. So the command runs the container of `deploy/cdm/` or one like it, and it is used only if it reproduces the
official scores of three examples.

The command reads one line of JSON per pair, `{"gold": LaTeX, "text": LaTeX}`, and writes one line for each, in the same
order: `{"f1": 0.824}`, or `{"error": "why"}` if one of the two could not be drawn.
"""

import json
import subprocess
from collections.abc import Sequence

from kopub.errors import first_line, visible

_EXAMPLES = (
    (
        r"r = \frac { \alpha } { \beta } \vert \sin \beta \left( \sigma _ { 1 } \pm \sigma _ { 2 } \right) \vert",
        r"r={\frac{\alpha}{\beta}}|\sin\beta\left(\sigma_{2}+\sigma_{1}\right)|",
        0.82,
    ),
    ("y = 2z + 3x", "y = 2x + 3z", 0.71),
    (
        r"\begin{array} { r l r } & { } & { \mathbf { J } _ { L } = \left( \begin{array} { c c } { 0 } & { 0 } \\ "
        r"{ v _ { n } } & { 0 } \end{array} \right) , ~ \mathbf { J } _ { R } = \left( \begin{array} { c c } "
        r"{ u _ { n - 1 } } & { 0 } \\ { 0 } & { 0 } \end{array} \right) , ~ } \\ & { } & { ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ "
        r"\mathbf { K } = \left( \begin{array} { c c } { V _ { n - 1 } } & { u _ { n } } \\ { v _ { n - 1 } } & "
        r"{ V _ { n } } \end{array} \right) , } \end{array}",
        r"\mathbf{J}_{R}={\left(\begin{array}{l l}{0}&{0}\\ {v_{n}}&{0}\end{array}\right)}\,,\ "
        r"\mathbf{J}_{L}={\left(\begin{array}{l l}{u_{n-1}}&{0}\\ {0}&{0}\end{array}\right)}\,,"
        r"\mathbf{K}={\left(\begin{array}{l l}{V_{n-1}}&{u_{n}}\\ {v_{n-1}}&{V_{n}}\end{array}\right)}\,,",
        0.95,
    ),
)
"""Gold, reading and F1 of the examples in OmniDocBench's own code (Apache-2.0)."""
_TOLERANCE = 0.02
_SECONDS = 120.0
"""Limit for one pair, which takes 5 to 10 s of processor time."""

OFF = "it is off: name a command that draws formulas (deploy/cdm)"

Pair = tuple[str, str]


class Cdm:
    """A scorer of pairs of formulas, by a command that passes three examples."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._why_not: str | None = None
        self._tried = False

    def why_not(self) -> str | None:
        """Return the reason to skip the metric, or None if the command works.

        The first call runs the examples.
        """
        if not self._tried:
            try:
                scores = self._run([(gold, text) for gold, text, _ in _EXAMPLES])
                for score, (_, _, wanted) in zip(scores, _EXAMPLES, strict=True):
                    if score is None or abs(score - wanted) > _TOLERANCE:
                        results = ", ".join("nothing" if f1 is None else f"{f1:.2f}" for f1 in scores)
                        raise ValueError(f"its three examples score {results} instead of 0.82, 0.71, 0.95")
            except ValueError as error:
                self._why_not = f"CDM does not work here: {error}"
            self._tried = True
        return self._why_not

    def score(self, pairs: Sequence[Pair]) -> list[float | None]:
        """Return the F1 of each (gold, reading), 0 to 1.

        It is 0 for an empty reading, and None if one of the two could not be drawn. Raises `ValueError` if the command
        itself fails.
        """
        written = [pair for pair in pairs if pair[1].strip()]
        scores = iter(self._run(written) if written else ())
        return [next(scores) if pair[1].strip() else 0.0 for pair in pairs]

    def _run(self, pairs: Sequence[Pair]) -> list[float | None]:
        lines = "".join(json.dumps({"gold": gold, "text": text}) + "\n" for gold, text in pairs)
        try:
            done = subprocess.run(
                self._command,
                input=lines,
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=_SECONDS * len(pairs),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ValueError(f"the command took more than {_SECONDS:g} s a pair") from None
        except OSError as error:
            raise ValueError(f"{self._command[0]} cannot be run: {error.strerror or error}") from None
        answers = [line for line in done.stdout.splitlines() if line.strip()]
        if done.returncode or len(answers) != len(pairs):
            message = visible(first_line(done.stderr), 200) or "nothing"
            raise ValueError(f"{len(answers)} answers to {len(pairs)} pairs, exit {done.returncode}, it said {message}")
        scores: list[float | None] = []
        for answer in answers:
            try:
                f1 = json.loads(answer).get("f1")
            except (ValueError, AttributeError):
                raise ValueError(f"an answer is no line of JSON: {visible(answer, 80)}") from None
            if f1 is not None and (not isinstance(f1, int | float) or not 0 <= f1 <= 1):
                raise ValueError(f"an F1 is not between 0 and 1: {visible(answer, 80)}")
            scores.append(None if f1 is None else float(f1))
        return scores
