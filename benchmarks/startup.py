"""Start-up time: what `import regard` adds to importing torch, and how long `regard --help` takes.

    python benchmarks/startup.py           -> results/startup.json
    python benchmarks/startup.py --quick   two runs of each, nothing written

Every run is a fresh process; the number that counts is the median. Public names of the package are imported when they
are first used, so the time until all of them are there is given too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import harness

IMPORT = """
import time
import torch
began = time.perf_counter()
import regard
after = time.perf_counter()
for name in regard.__all__:
    getattr(regard, name)
print(after - began, time.perf_counter() - began)
"""
GOALS = {"import regard, beyond torch": 0.3, "regard --help": 0.5}


def imports(environment: dict[str, str]) -> tuple[float, float]:
    """Seconds that the package adds to torch, and that all its public names add."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    return float(done[0]), float(done[1])


def help_time(environment: dict[str, str]) -> float:
    """Seconds from the command to the end of its help."""
    script = Path(sys.executable).with_name("regard")
    command = [str(script)] if script.exists() else [sys.executable, "-c", "from regard.cli import main; main()"]
    began = time.perf_counter()
    done = subprocess.run([*command, "--help"], env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode or "translate" not in done.stdout:
        raise SystemExit(f"regard --help failed: {done.stderr.strip()}")
    return seconds


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    number = 2 if arguments.quick else arguments.runs
    environment = os.environ | {"PYTHONPATH": str(harness.HERE.parent / "src")}
    imports(environment)  # once for the file cache and the compiled .pyc files
    help_time(environment)
    package, names, commands = [], [], []
    for _ in range(number):
        first, every = imports(environment)
        package.append(first)
        names.append(every)
        commands.append(help_time(environment))
    found: dict[str, Any] = {
        "import regard, beyond torch": harness.spread(package),
        "all public names, beyond torch": harness.spread(names),
        "regard --help": harness.spread(commands),
    }
    rows = [["what", "median s", "range", "goal s"]]
    for name, value in found.items():
        rows.append([name, f"{value['median']:.3f}", f"{value['min']:.3f}-{value['max']:.3f}", GOALS.get(name, "")])
    print(harness.table(rows))
    if not arguments.quick:
        path = harness.write("startup.json", harness.machine() | {"runs": number, "seconds": found, "goals": GOALS})
        print("written:", os.path.relpath(path))


if __name__ == "__main__":
    main()
