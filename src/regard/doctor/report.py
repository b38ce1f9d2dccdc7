"""The report of the checks: one line per check, and a verdict.

ok        causal       no output depends on a later input
FAILED    batch        row 1 differs from itself alone by 0.031; first in blocks.0.norm (BatchMean)
skipped   steps        the model has no start and step
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from regard.core.errors import UnknownName, did_you_mean

MESSAGE_COLUMN = 23  # where the messages begin


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: str
    state: Literal["ok", "failed", "skipped"]
    message: str  # what was found, or why the check was skipped
    location: str = ""  # the module where the failure begins, if known
    seconds: float = 0.0

    def __str__(self) -> str:
        state = "FAILED" if self.state == "failed" else self.state
        return f"{state:9} {self.check:12} {self.message}{f'; first in {self.location}' if self.location else ''}"


@dataclass(frozen=True)
class Report:
    """All findings on one model, in order."""

    subject: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Return whether no check failed; skipped ones do not count."""
        return not self.failed

    @property
    def failed(self) -> tuple[Finding, ...]:
        """Return the failed findings."""
        return tuple(finding for finding in self.findings if finding.state == "failed")

    def __getitem__(self, check: str) -> Finding:
        for finding in self.findings:
            if finding.check == check:
                return finding
        raise UnknownName(f"no check is called '{check}'; {did_you_mean(check, [f.check for f in self.findings])}")

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __str__(self) -> str:
        return "\n".join([self.subject, *map(str, self.findings), self.verdict])

    @property
    def verdict(self) -> str:
        """Return the counts in one line."""
        count = {state: sum(f.state == state for f in self.findings) for state in ("ok", "failed", "skipped")}
        names = ", ".join(finding.check for finding in self.failed)
        skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
        return f"{count['failed']} failed ({names}), " * bool(names) + f"{count['ok']} ok{skipped}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {"subject": self.subject, "ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}


class Failed(Exception):
    """Raised by a check that fails, with a message and the module where it begins."""

    def __init__(self, message: str, location: str = "") -> None:
        super().__init__(message)
        self.message, self.location = message, location


class Skipped(Exception):
    """Raised by a check that cannot be run, with the reason."""


FindingCallback = Callable[[Finding], None]
