"""What `make test` runs of what there is many of; the rest is marked `thorough` and left to `make test-all`."""

import os
from pathlib import Path

import pytest

PATIENCE = 3 if "CI" in os.environ else 1
"""Times the time limit of a test, and of a run in it: a machine of CI may be busy with others' work."""

JOURNEYS = "more journeys in a browser: `make test` has the main one, the form, links, sessions and a submission"
"""Why some files of tests/browser are left to `make test-all`."""

LOOKS = "charts in every theme and width: `make test` has each theme and each width once"
WIDE_PAGES = "pages at 1440 pixels: `make test` has them at 390"


def telling(values, *chosen, why):
    """Values for `parametrize`, of which all but the chosen ones are left to `make test-all`, for this reason."""
    assert set(chosen) <= set(values), "what is chosen must be one of the values"
    return [v if v in chosen else pytest.param(v, marks=pytest.mark.thorough(why)) for v in values]


def asked_for(request, name):
    """The values of a parameter in those tests of this run that use the fixture which asks: nothing else is measured for them."""
    items = (i for i in request.session.items if i.path == request.path and request.fixturename in i.fixturenames)
    return {
        item.callspec.params[name] for item in items if name in getattr(getattr(item, "callspec", None), "params", {})
    }


SLOW = Path(__file__).with_name("slow.txt")


def slow_tests():
    """{function: seconds} of those that `make test` leaves to `make test-all` because they take long: scripts/slow_tests.py."""
    lines = SLOW.read_text().splitlines() if SLOW.exists() else []
    return {name: float(seconds) for seconds, name in map(str.split, lines)}


def function_of(nodeid):
    """A test without its parameters."""
    return nodeid.split("[", 1)[0]
