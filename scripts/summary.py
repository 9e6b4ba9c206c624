"""summary.py stages.tsv: what `make test` did: the time of each stage, what failed, one line of counts, and what was skipped and why.

A line of stages.tsv is: name, seconds, exit status or "skipped", where the results lie (or -), a note. Results are a folder of JUnit
files, or one with ctest's own ctest.xml and, for a ctest test that is a whole GoogleTest program, the <test>.xml with that program's cases.
Exit status: 0 when something passed and nothing failed.
"""

import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Case:
    name: str
    outcome: str  # passed, failed, skipped
    reason: str = ""


def reason_of(element):
    """What a <skipped> element says; GoogleTest puts file:line on a line of its own before the message."""
    text = element.get("message") or element.text or ""
    if text == "collection skipped":  # pytest's word for a whole file; the reason stands in the text, at the end of a tuple
        text = (element.text or "").split("'Skipped: ")[-1].rstrip("')\"")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and re.fullmatch(r"\S+:\d+", lines[0]):
        lines = lines[1:]
    return lines[0].removeprefix("Skipped: ") if lines else "no reason given"


def read_junit(path):
    """The cases of a JUnit file from pytest or GoogleTest."""
    cases = []
    for element in ET.parse(path).getroot().iter("testcase"):
        name = ".".join(filter(None, [element.get("classname"), element.get("name")]))
        if element.find("failure") is not None or element.find("error") is not None:
            cases.append(Case(name, "failed"))
        elif element.find("skipped") is not None:
            cases.append(Case(name, "skipped", reason_of(element.find("skipped"))))
        elif element.get("status") == "notrun":
            cases.append(Case(name, "skipped", "disabled in the source"))
        else:
            cases.append(Case(name, "passed"))
    return cases


def read_ctest(folder):
    cases = []
    for element in ET.parse(folder / "ctest.xml").getroot().iter("testcase"):
        name, status = element.get("name"), element.get("status")
        own = folder / f"{name}.xml"
        inner = read_junit(own) if own.exists() else []
        cases += inner
        if status == "run":
            if not own.exists():
                cases.append(Case(name, "passed"))
        elif status == "notrun" and element.find("skipped").get("message", "").startswith("SKIP_"):
            said = re.search(r"^skipped: (.*)", element.findtext("system-out") or "", re.MULTILINE)
            cases.append(Case(name, "skipped", said.group(1) if said else "no reason given"))
        elif not any(case.outcome == "failed" for case in inner):
            # It crashed, ran out of time, or failed after its last case (a leak, say); ctest has printed what it said.
            cases.append(Case(f"{name} (outside its cases)" if inner else name, "failed"))
    return cases


def read_stage(name, status, results, note):
    if status == "skipped":
        return [Case(name, "skipped", note)]
    path = Path(results)
    cases = []
    try:
        if results != "-":
            if (path / "ctest.xml").exists():
                cases = read_ctest(path)
            else:
                cases = [case for file in sorted(path.iterdir()) for case in read_junit(file)]
    except (OSError, ET.ParseError) as error:
        return [Case(f"{name} (no results: {error})", "failed")]
    if status != "0" and not any(case.outcome == "failed" for case in cases):
        cases.append(Case(f"{name} (exit status {status})", "failed"))
    return cases


def without_parameters(name):
    """Instance/Suite.Case/7 and test_case[7] are cases of one test."""
    name = re.sub(r"\[.*\]$", "", name)
    return re.sub(r"(?<=[.])([^/]*)/.*$", r"\1", re.sub(r"^[^/.]*/", "", name))


def main(stages):
    total = Counter()
    failed, skipped = [], Counter()
    print("\nstage               time     passed  failed  skipped")
    for line in Path(stages).read_text().splitlines():
        name, seconds, status, results, note = line.split("\t")
        cases = read_stage(name, status, results, note)
        counts = Counter(case.outcome for case in cases)
        total += counts
        failed += [f"{name}: {case.name}" for case in cases if case.outcome == "failed"]
        skipped.update((f"{name}: {without_parameters(case.name)}", case.reason) for case in cases if case.outcome == "skipped")
        numbers = "".join(f"{counts[outcome]:8}" for outcome in ("passed", "failed", "skipped")) if cases else ""
        print(f"{name:16} {int(seconds):6} s   {numbers}".rstrip())
    for name in failed:
        print(f"failed: {name}")
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    for (name, reason), count in sorted(skipped.items()):
        print(f"skipped: {name}{f' ({count} cases)' if count > 1 else ''}: {reason}")
    if not total["passed"] and not total["failed"]:
        print("no tests ran")
    return 0 if total["passed"] and not total["failed"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
