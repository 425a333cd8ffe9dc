"""A log line says which run it is about, for people and as JSON."""

import json
import logging
import sys

import pytest

from kernels.host import logs


@pytest.fixture
def record():
    def make(message, *arguments, **extra):
        log = logging.getLogger("runs.tests")
        error = extra.pop("exc_info", None)
        return log.makeRecord(log.name, logging.WARNING, "file.py", 1, message, arguments, error, extra=extra)

    return make


def test_json_has_the_run_and_what_was_given(record):
    with logs.about(run=7, attempt=3), logs.about(request="ab"):
        line = json.loads(logs.JsonLines().format(record("took %s", "long", child=42)))
    assert line.pop("at").endswith("+00:00") and isinstance(line.pop("process"), int)
    assert line == {
        "level": "warning", "logger": "runs.tests", "message": "took long", "child": 42,
        "run": 7, "attempt": 3, "request": "ab",
    }  # fmt: skip


def test_what_a_line_is_about_ends_with_the_block(record):
    with logs.about(run=7):
        pass
    assert "run" not in json.loads(logs.JsonLines().format(record("later")))


def test_an_error_stays_one_line(record):
    try:
        raise ValueError("two\nlines")
    except ValueError:
        text = logs.JsonLines().format(record("it failed", exc_info=sys.exc_info()))
    assert "\n" not in text and "ValueError: two\nlines" in json.loads(text)["error"]


def test_people_read_the_run_at_the_end(record):
    with logs.about(run=7):
        assert logs.PlainLines().format(record("sent")).endswith("WARNING runs.tests: sent run=7")


@pytest.mark.parametrize("line", ('{"message": "said", "run": 7}', "a traceback", "[1]", '"x"', ""))
def test_what_a_part_writes_becomes_json_with_its_name(line):
    found = json.loads(logs.of_part("agent-0", line))
    assert found["part"] == "agent-0"
    assert found["message"] == ("said" if "said" in line else line)
