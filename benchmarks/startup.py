"""Start-up time: seconds that `import regard` adds to importing torch, and seconds of whole commands.

    python benchmarks/startup.py           -> results/startup.json
    python benchmarks/startup.py --quick   two runs of each, nothing written

Every run is a fresh process; the number that counts is the median. Public names of the package are imported when they
are first used, so the time until all of them are there is given too. Commands whose model is a small one of the zoo
stand beside `import torch`, without which none of them can begin.
"""

from __future__ import annotations

import argparse
import os
import shlex
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
COMMANDS = {  # command -> a word of its output
    "regard --help": "translate",
    "regard translate --to de 'A dog runs through the snow.'": "Hund",
    "regard translate --model gru-additive 'A dog runs through the snow.'": "Hund",
    "regard pronounce attention": "AH",
    "regard classify --model languages 'Guten Tag'": "German",
}
GOALS = {"import regard, beyond torch": 0.3, "regard --help": 0.5}


def imports(environment: dict[str, str]) -> tuple[float, float]:
    """Return the seconds that the package, and all its public names, add to importing torch."""
    output = subprocess.run(
        [sys.executable, "-c", IMPORT], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    return float(output[0]), float(output[1])


def command_time(command: list[str], environment: dict[str, str], expected_output: str = "") -> float:
    """Return the seconds that a command takes."""
    began = time.perf_counter()
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if process.returncode or expected_output not in process.stdout:
        raise SystemExit(f"{command} failed: {process.stderr.strip()}")
    return seconds


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    number = 2 if arguments.quick else arguments.runs
    environment = os.environ | {"PYTHONPATH": str(harness.HERE.parent / "src")}
    script = Path(sys.executable).with_name("regard")
    regard = [str(script)] if script.exists() else [sys.executable, "-m", "regard"]
    timed = {"import torch": ([sys.executable, "-c", "import torch"], "")}
    timed |= {name: ([*regard, *shlex.split(name)[1:]], expected_output) for name, expected_output in COMMANDS.items()}
    imports(environment)  # once for the file cache and the compiled .pyc files
    for command, expected_output in timed.values():
        command_time(command, environment, expected_output)
    seconds: dict[str, list[float]] = {}
    for _ in range(number):
        package, names = imports(environment)
        seconds.setdefault("import regard, beyond torch", []).append(package)
        seconds.setdefault("all public names, beyond torch", []).append(names)
        for name, (command, expected_output) in timed.items():
            seconds.setdefault(name, []).append(command_time(command, environment, expected_output))
    found: dict[str, Any] = {name: harness.median_and_range(values) for name, values in seconds.items()}
    rows = [["what", "median s", "range", "goal s"]]
    for name, value in found.items():
        rows.append([name, f"{value['median']:.3f}", f"{value['min']:.3f}-{value['max']:.3f}", GOALS.get(name, "")])
    print(harness.table(rows))
    if not arguments.quick:
        path = harness.write("startup.json", harness.machine() | {"runs": number, "seconds": found, "goals": GOALS})
        print("written:", os.path.relpath(path))


if __name__ == "__main__":
    main()
