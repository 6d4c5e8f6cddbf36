"""What an examination finds: one line each."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """It runs, with a disadvantage that the line names."""
    PROBLEM = "problem"
    """A run would fail, or make rubbish."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`check` names what was looked at, `says` what was found and what that means, `do` what to do about it."""

    check: str
    level: Level
    says: str
    do: str = ""


def ok(check: str, says: str) -> Finding:
    """Return a finding that needs nothing."""
    return Finding(check, Level.OK, says)


def warning(check: str, says: str, do: str) -> Finding:
    """Return a finding that a run can bear."""
    return Finding(check, Level.WARNING, says, do)


def problem(check: str, says: str, do: str) -> Finding:
    """Return a finding that a run cannot bear."""
    return Finding(check, Level.PROBLEM, says, do)


def is_well(findings: Iterable[Finding]) -> bool:
    """Return whether there is no problem among them."""
    return all(finding.level is not Level.PROBLEM for finding in findings)
