"""Mutation testing: change one expression at a time, and see whether a test notices.

    python scripts/mutants.py                      make mutants: the map where it is missing, then 200 mutants
    python scripts/mutants.py --number 60 --jobs 1
    python scripts/mutants.py --again              only those that survived, after tests were written
    python scripts/mutants.py --report             what is known, without running anything

    map        which default test executes which line, by coverage.py; one file of tests per process, kept in .mutants/
    mutants    a seeded choice, the same number from each package; one change of one expression (`_changes`)
    run        the default tests that execute the changed line, nearest and fastest first, up to `BUDGET` seconds

A mutant is killed if a test fails, does not end in time, or crashes. Processes are forked from one that has imported
the large libraries. The mutated file stands in a tree of symbolic links, so that the working tree never changes. All is
resumable: what is known of a mutant or a file of tests is used as long as the sources are the same. Survivors with a
reason are in scripts/mutants.json; the exit status is 1 if fewer than 90 % are killed or one survives without a reason.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".mutants"
REASONS = Path(__file__).with_suffix(".json")
PACKAGES = ("losses", "metrics", "decoding", "serve", "data", "attention")
TESTS = (
    *("losses", "metrics", "decoding", "serve", "data", "attention", "contracts", "blocks", "models", "tasks"),
    *("modalities", "interpret", "tokens", "positions", "core", "see", "training", "weights", "runtime", "cost"),
    *("parity", "doctor", "cli", "stories"),
)
SKIPPED = ("*_triton.py", "*/__init__.py")  # need a GPU; registries and exports
BUDGET = 60.0  # seconds of tests, as the map measured them
MAP_LIMIT, START_LIMIT = 1200.0, 60.0  # seconds of one file of tests, and of starting
WANTED = 0.9  # of the mutants are killed
PRELOAD = ("torch", "pytest", "numpy", "PIL.Image", "einops", "jaxtyping", "beartype", "hypothesis", "tokenizers",
           "safetensors.torch", "fastapi.testclient", "httpx", "sacrebleu", "torch.testing")  # fmt: skip

# -- mutants -----------------------------------------------------------------------------------------------------------

OPERATORS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or,
    ast.Or: ast.And,
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "amax": "amin", "amin": "amax"}


@dataclass(frozen=True)
class Mutant:
    """One change: `old` becomes `new`. The tests of `lines` are run; where it has none, those of the whole file."""

    file: str
    line: int
    change: str
    old: str
    new: str
    begin: int  # bytes of the file
    end: int
    lines: tuple[int, ...]
    id: str = ""

    def apply(self, source: bytes) -> bytes:
        """Return the changed file; it has as many lines."""
        new = self.new.encode() + b"\n" * source[self.begin : self.end].count(b"\n")
        return source[: self.begin] + new + source[self.end :]

    def compiles(self) -> bool:
        """Return whether the changed file is Python."""
        try:
            compile(self.apply((ROOT / self.file).read_bytes()), self.file, "exec")
        except SyntaxError:
            return False
        return True


def find_mutants(file: str, source: bytes) -> Iterator[Mutant]:
    """Yield all mutants of a file; a few do not compile."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, statement, in_function in _walk(ast.parse(source)):
        for change, new in _changes(node):
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            old = source[begin:end].decode()
            last = statement.body[0].lineno - 1 if hasattr(statement, "body") else statement.end_lineno
            lines = tuple(range(statement.lineno, max(last, statement.lineno) + 1)) if in_function else ()
            yield Mutant(file, node.lineno, change, old, new, begin, end, lines)


def _walk(tree: ast.Module) -> Iterator[tuple[Any, Any, bool]]:
    """Yield (node, its statement, whether that is in a function) without annotations, texts, f-strings, decorators."""
    pending: list[tuple[Any, Any, bool]] = [(node, node, False) for node in tree.body]
    while pending:
        node, statement, in_function = pending.pop()
        if isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert)):
            continue  # positions inside an f-string are not those of the file; an assertion is a note for the reader
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.stmt):
            statement = node
        yield node, statement, in_function
        inside = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases"):
                continue
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and name == "args":
                pending += [(each, statement, False) for each in (*value.defaults, *value.kw_defaults) if each]
                continue
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST) and hasattr(each, "lineno"):
                    pending.append((each, statement, inside))
                elif isinstance(each, ast.comprehension):
                    pending += [(part, statement, inside) for part in (each.iter, *each.ifs)]


def _changes(node: Any) -> Iterator[tuple[str, str]]:
    """Yield (kind, new text) of every change of a node."""
    if isinstance(node, ast.Compare):
        for n, operator in enumerate(node.ops):
            ops = [*node.ops[:n], OPERATORS[type(operator)](), *node.ops[n + 1 :]]
            yield "compare", f"({ast.unparse(ast.Compare(node.left, ops, node.comparators))})"
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield "arithmetic", f"({ast.unparse(ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right))})"
    elif isinstance(node, ast.BoolOp):
        yield "and/or", f"({ast.unparse(ast.BoolOp(OPERATORS[type(node.op)](), node.values))})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield "sign", f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "boolean", str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield "integer", str(node.value + 1)
        if node.value > 0:
            yield "integer", str(node.value - 1)
    elif isinstance(node, ast.Constant) and isinstance(node.value, float):
        yield "float", repr(node.value * 2 or 1.0)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        yield "call", ast.unparse(ast.Call(ast.Name(CALLS[node.func.id]), node.args, node.keywords))
    elif isinstance(node, ast.IfExp):
        yield "condition", f"({ast.unparse(ast.IfExp(node.test, node.orelse, node.body))})"
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "return", "return None"
    elif isinstance(node, ast.Raise):
        yield "raise", "pass"
    elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)):
        if not (isinstance(node, ast.Expr) and isinstance(node.value, (ast.Yield, ast.YieldFrom))):
            yield "drop", "pass"
    elif isinstance(node, (ast.Break, ast.Continue)):
        yield "loop", "continue" if isinstance(node, ast.Break) else "break"


def _is_none(node: Any) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def choose_mutants(number: int, seed: int) -> list[Mutant]:
    """Return a seeded choice, at most one for each line. Changes elsewhere in a file do not change the choice."""
    chosen: list[Mutant] = []
    for place, package in enumerate(PACKAGES):
        found: dict[str, Mutant] = {}
        for path in sorted((ROOT / "src" / "regard" / package).rglob("*.py")):
            if any(path.match(pattern) for pattern in SKIPPED):
                continue
            file, source = str(path.relative_to(ROOT)), path.read_bytes()
            numbered, seen = list[str](), Counter[str]()  # equal lines of a file are told apart by their number
            for line in map(str.strip, source.decode().splitlines()):
                numbered.append(f"{line}|{seen[line]}")
                seen[line] += 1
            for mutant in find_mutants(file, source):
                named = f"{file}|{numbered[mutant.line - 1]}|{mutant.old}|{mutant.new}|{mutant.change}"
                key = hashlib.sha256(named.encode()).hexdigest()[:12]
                found[key] = Mutant(**{**asdict(mutant), "id": key, "lines": mutant.lines})
        order = sorted(found, key=lambda key: hashlib.sha256(f"{seed}{key}".encode()).hexdigest())
        share, taken = number // len(PACKAGES) + (place < number % len(PACKAGES)), set[tuple[str, int]]()
        for key in order:
            mutant = found[key]
            if len(taken) < share and (mutant.file, mutant.line) not in taken and mutant.compiles():
                taken.add((mutant.file, mutant.line))
                chosen.append(mutant)
    random.Random(seed).shuffle(chosen)
    return chosen


# -- processes ---------------------------------------------------------------------------------------------------------


def make_tree(folder: Path, mutant: Mutant | None = None) -> Path:
    """Make a tree of links to the project in which one file is mutated; return its folder of sources."""
    shutil.rmtree(folder, ignore_errors=True)
    _link(ROOT, folder, {"src", ".mutants"})
    _link(ROOT / "src", folder / "src", {"regard"})
    parts = Path(mutant.file).parts[1:] if mutant else ("regard", "")
    for depth in range(1, len(parts)):
        inner = Path("src", *parts[:depth])
        _link(ROOT / inner, folder / inner, {parts[depth], "__pycache__"})
    if mutant is not None:
        (folder / mutant.file).write_bytes(mutant.apply((ROOT / mutant.file).read_bytes()))
    return folder / "src"


def _link(source: Path, to: Path, without: set[str]) -> None:
    to.mkdir(parents=True)
    for each in source.iterdir():
        if each.name not in without:
            (to / each.name).symlink_to(each)


class Recorder:
    """A pytest plugin: runs the wanted tests only, and writes durations, failures and, for the map, lines."""

    def __init__(self, out: Path, wanted: list[str] | None, covered: bool) -> None:
        self.out, self.wanted, self.coverage = out, wanted, None
        self.tests: dict[str, float] = {}
        self.failed: list[str] = []
        if covered:
            import coverage

            sources = [f"{ROOT}/src/regard/{package}/*" for package in PACKAGES]
            self.coverage = coverage.Coverage(data_file=None, config_file=False, include=sources, messages=False)
            self.coverage.start()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.wanted is not None:
            rank = {name: n for n, name in enumerate(self.wanted)}
            items[:] = sorted((item for item in items if item.nodeid in rank), key=lambda item: rank[item.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self.coverage is not None:
            self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.tests[report.nodeid] = self.tests.get(report.nodeid, 0.0) + report.duration
        if report.outcome == "failed":
            self.failed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        found: dict[str, Any] = {"failed": self.failed, "tests": self.tests}
        if self.coverage is not None:
            self.coverage.stop()
            data, number = self.coverage.get_data(), {name: n for n, name in enumerate(self.tests)}
            found["lines"] = {
                str(Path(file).relative_to(ROOT)): {
                    line: sorted(number[name] for name in names if name in number)
                    for line, names in data.contexts_by_lineno(file).items()
                }
                for file in data.measured_files()
            }
        self.out.write_text(json.dumps(found))


@dataclass
class Job:
    """A process that runs tests, and what to do with its end."""

    arguments: list[str]
    name: str
    done: Callable[[int | None, dict[str, Any]], None]  # exit status (None: not in time), what the recorder wrote
    limit: float
    mutant: Mutant | None = None
    wanted: list[str] | None = None
    covered: bool = False


def run_jobs(jobs: Iterator[Job], number: int) -> None:
    """Run jobs in processes forked from this one, so many at a time."""
    for name in PRELOAD:
        __import__(name)
    running: dict[int, tuple[Job, Path, float]] = {}
    left, places = iter(jobs), [WORK / f"tree-{n}" for n in range(number)]
    try:
        while True:
            while places and (job := next(left, None)) is not None:
                place = places.pop()
                source = make_tree(place, job.mutant)
                if not (child := os.fork()):
                    _child(job, source, place)
                running[child] = job, place, time.monotonic()
            if not running:
                return
            time.sleep(0.1)
            for child, (job, place, began) in list(running.items()):
                ended, status = os.waitpid(child, os.WNOHANG)
                late = not ended and time.monotonic() - began > job.limit
                if late:
                    _end(child)
                if ended or late:
                    del running[child]
                    places.append(place)
                    out = place / "out.json"
                    found = json.loads(out.read_text()) if out.is_file() and not late else {}
                    job.done(None if late else os.waitstatus_to_exitcode(status), found)
    finally:
        for child in running:
            _end(child)


def _end(child: int) -> None:
    """End a process with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _child(job: Job, source: Path, place: Path) -> None:
    """Run pytest in this process and end it."""
    os.setsid()
    log = os.open(place / "log", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.environ["PYTHONPATH"] = str(source)
    sys.path[:0] = [str(source), str(ROOT)]
    os.chdir(ROOT)
    status = 3
    try:
        import pytest

        plugin = Recorder(place / "out.json", job.wanted, job.covered)
        status = int(pytest.main([*job.arguments, "-q", "-p", "no:cacheprovider"], plugins=[plugin]))
    finally:
        sys.stdout.flush()
        os._exit(status)


# -- map ---------------------------------------------------------------------------------------------------------------


def _hash(*files: str | Path) -> str:
    return hashlib.sha256(b"".join((ROOT / file).read_bytes() for file in files)).hexdigest()[:16]


def make_map(jobs: int, folders: tuple[str, ...]) -> None:
    """Note which tests execute which lines, for every file of tests that changed or whose sources did."""
    given = [ROOT / "tests" / name for name in folders]
    files = [file for path in given for file in ([path] if path.is_file() else sorted(path.rglob("test_*.py")))]

    def todo() -> Iterator[Job]:
        for file in files:
            name = str(file.relative_to(ROOT))
            kept = WORK / "map" / f"{name.replace('/', '.')}.json"
            if kept.is_file():
                known = json.loads(kept.read_text())
                if known["hash"] == _hash(name, *(x for x in sorted(known["lines"]) if (ROOT / x).is_file())):
                    continue

            def done(status: int | None, found: dict[str, Any], name: str = name, kept: Path = kept) -> None:
                lines = found.get("lines", {})
                found = {"failed": found.get("failed", []), "tests": found.get("tests", {}), "lines": lines}
                kept.parent.mkdir(parents=True, exist_ok=True)
                if status in (0, 1, 5):
                    kept.write_text(json.dumps(found | {"hash": _hash(name, *sorted(lines))}))
                bad = "" if status == 0 else f", status {status}, failed: {found['failed'][:3]}"
                print(f"{name}: {len(found['tests'])} tests, {sum(found['tests'].values()):.0f} s{bad}", flush=True)

            yield Job([name, "--dist", "no"], name, done, MAP_LIMIT, covered=True)

    run_jobs(todo(), jobs)


class Map:
    """Which tests execute a line, and how long each takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.tests: dict[tuple[str, int], set[str]] = {}
        self.of_file: dict[str, set[str]] = {}
        for file in sorted((WORK / "map").glob("*.json")):
            found = json.loads(file.read_text())
            names, bad = list(found["tests"]), set(found["failed"])
            self.seconds |= {name: seconds for name, seconds in found["tests"].items() if name not in bad}
            for source, lines in found["lines"].items():
                for line, numbers in lines.items():
                    good = {names[n] for n in numbers} - bad
                    self.tests.setdefault((source, int(line)), set()).update(good)
                    self.of_file.setdefault(source, set()).update(good)

    def choose(self, mutant: Mutant) -> tuple[list[str], int]:
        """Return the tests of a mutant within the budget, file by file, and how many there are in all."""
        found = set[str]().union(*(self.tests.get((mutant.file, line), set()) for line in mutant.lines))
        own = f"/test_{Path(mutant.file).stem}.py::"  # the module's own tests first, then those of its package
        if not mutant.lines:  # a constant: who reads it need not execute the file
            found = self.of_file.get(mutant.file, set()) | {name for name in self.seconds if own in name}
        near = "/".join(["tests", *Path(mutant.file).parts[2:3]])
        chosen, total = list[str](), 0.0
        for name in sorted(found, key=lambda n: (own not in n, not n.startswith(near), self.seconds[n], n)):
            if not chosen or total + self.seconds[name] <= BUDGET:
                chosen.append(name)
                total += self.seconds[name]
        first = {name.split("::")[0]: n for n, name in reversed(list(enumerate(chosen)))}
        return sorted(chosen, key=lambda name: first[name.split("::")[0]]), len(found)


# -- run and report ----------------------------------------------------------------------------------------------------


def run_mutants(mutants: list[Mutant], jobs: int, again: bool) -> None:
    """Run the tests of every mutant whose outcome is not known, or that survived if `again`."""
    known, tests = read_results(), Map()

    def todo() -> Iterator[Job]:
        for mutant in mutants:
            was = known.get(mutant.id)
            if was is not None and not (again and was["outcome"] == "survived"):
                continue
            chosen, many = tests.choose(mutant)

            def done(
                status: int | None,
                found: dict[str, Any],
                mutant: Mutant = mutant,
                chosen: Any = chosen,
                many: int = many,
            ) -> None:
                outcome = "survived" if status in (0, 5) else "killed"
                by = "time" if status is None else (found.get("failed") or [f"status {status}"])[0]
                by = by if outcome == "killed" else "no test executes it" if not many else ""
                row = {"id": mutant.id, "file": mutant.file, "line": mutant.line, "change": mutant.change,
                       "old": mutant.old, "new": mutant.new, "outcome": outcome, "by": by, "tests": len(chosen),
                       "of": many}  # fmt: skip
                with (WORK / "results.jsonl").open("a") as file:
                    file.write(json.dumps(row) + "\n")
                known[mutant.id] = row
                print(_describe(row), flush=True)

            if not chosen:
                done(0, {})
                continue
            files = list(dict.fromkeys(name.split("::")[0] for name in chosen))
            limit = START_LIMIT + 4 * sum(tests.seconds[name] for name in chosen)
            yield Job([*files, "-x", "--dist", "no"], mutant.id, done, limit, mutant, chosen)

    run_jobs(todo(), jobs)


def read_results() -> dict[str, dict[str, Any]]:
    """Return the latest outcome of every mutant."""
    file = WORK / "results.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    return {row["id"]: row for row in rows}


def report(mutants: list[Mutant]) -> int:
    """Print how many were killed, and the survivors with their reasons; return the exit status."""
    known, reasons = read_results(), json.loads(REASONS.read_text()) if REASONS.is_file() else {}
    rows = [known[mutant.id] for mutant in mutants if mutant.id in known]
    survivors = [row for row in rows if row["outcome"] == "survived"]
    for row in survivors:
        print(_describe(row), "|", reasons.get(row["id"], {}).get("reason", "NO REASON"))
    for package in PACKAGES:
        own = [row for row in rows if f"/regard/{package}/" in row["file"]]
        print(f"{package:10} {sum(row['outcome'] == 'killed' for row in own)} of {len(own)} killed")
    killed = len(rows) - len(survivors)
    print(
        f"{killed} of {len(rows)} mutants killed ({100 * killed / max(1, len(rows)):.1f} %), of {len(mutants)} chosen"
    )
    return int(killed < WANTED * len(rows) or any(row["id"] not in reasons for row in survivors))


def _describe(row: dict[str, Any]) -> str:
    place, change = f"{row['file']}:{row['line']}", f"{row['old']!r:.70} -> {row['new']!r:.70}"
    return f"{row['outcome']:8} {row['id']} {place} {change} {row['by']} ({row['tests']} of {row['of']} tests)"


def main() -> int:
    """Run from a shell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tests", nargs="*", default=TESTS, help="folders or files of tests")
    parser.add_argument("--map", action="store_true", help="make the map only")
    parser.add_argument("--again", action="store_true", help="run those that survived again")
    parser.add_argument("--report", action="store_true", help="print what is known only")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # processes are ended first
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    WORK.mkdir(exist_ok=True)
    mutants = choose_mutants(asked.number, asked.seed)
    if not asked.report:
        make_map(asked.jobs, tuple(asked.tests))
        if asked.map:
            return 0
        run_mutants(mutants, asked.jobs, asked.again)
    return report(mutants)


if __name__ == "__main__":
    sys.exit(main())
