"""skipped.py RESULTS.xml FOLDER...: fails when pytest skipped a test in one of the folders, and says which and why."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree


def main() -> None:
    results, *folders = sys.argv[1:]
    if not (Path(results).exists() and Path(results).stat().st_size):
        sys.exit("pytest did not finish: it left no results")
    packages = tuple(folder.strip("/").replace("/", ".") + "." for folder in folders)
    found = False
    for case in ElementTree.parse(results).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}".strip(".")
        skipped = case.find("skipped")
        if skipped is not None and skipped.get("type") == "pytest.skip" and name.startswith(packages):
            found = True
            print(f"must not be skipped here: {name}: {skipped.get('message')}")
    sys.exit(found)


if __name__ == "__main__":
    main()
