"""`make mutants`: every rule taken out of a copy of the sources, one after another; a line for each.

Names, or parts of them, choose some: `cd tests && python -m mutants fsync`. Ends with 1 if a mutant survives, cannot be
judged, or no longer applies.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutants.everything import MUTANTS
from mutants.mutant import Mutant
from mutants.mutation import Verdict, copy_sources, judge, run_tests


def chosen(parts: list[str]) -> list[Mutant]:
    """The mutants whose names contain one of these, or all."""
    return [mutant for mutant in MUTANTS if not parts or any(part in mutant.name for part in parts)]


def sound(pristine: Path, mutants: list[Mutant]) -> str | None:
    """Why the tests cannot judge anything: they fail without a mutant, or do not run the copy."""
    where = subprocess.run(
        [sys.executable, "-c", "import onceward; print(onceward.__file__)"],
        env={"PYTHONPATH": str(pristine)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    if not Path(where).is_relative_to(pristine):
        return f"the tests would run {where}, not the copy"
    tests = tuple(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    code, output = run_tests(pristine, tests)
    return f"the tests fail without any mutant:\n{output[-4000:]}" if code else None


def main() -> int:
    """Judge them, tell, and say whether all were caught."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; all mutants if none is given")
    parser.add_argument("--at-once", type=int, default=2, help="how many run at the same time (default: 2)")
    options = parser.parse_args()
    mutants = chosen(options.names)
    if not mutants:
        parser.error("no mutant has such a name")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="onceward-mutants-") as folder:
        work = Path(folder)
        pristine = copy_sources(work / "pristine")
        if (why := sound(pristine, mutants)) is not None:
            print(why)
            return 1
        with ThreadPoolExecutor(options.at_once) as pool:
            failed = [
                mutant.name
                for mutant, verdict in zip(mutants, pool.map(lambda m: judge(m, pristine, work), mutants), strict=True)
                if not on_plan(mutant, verdict)
            ]
    took_s = time.monotonic() - started
    print(f"{len(mutants) - len(failed)} of {len(mutants)} mutants caught in {took_s:.0f} s")
    return 1 if failed else 0


def on_plan(mutant: Mutant, verdict: Verdict) -> bool:
    """One line; more only where something is wrong."""
    print(f"{mutant.name}: {verdict.says}", flush=True)
    if not verdict.caught:
        print(f"    {mutant.rule} ({mutant.file})", flush=True)
    return verdict.caught


if __name__ == "__main__":
    sys.exit(main())
