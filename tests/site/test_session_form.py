"""The form of a session's plan: rows come and go, bad input gets a sentence, and nothing that was typed is lost."""

import pytest
from django.urls import reverse

from runs.models import Session
from runs.session_form import KINDS, in_words


@pytest.fixture
def session(owner):
    return Session.objects.create(title="Beat cuDNN", user=owner.user)


def typed(**rows):
    """What a browser sends: kind -> rows."""
    data = {
        "title": "Beat cuDNN",
        "objective": "",
        "decision": "",
        "next_actions": "",
        "learnings": "",
        "deliverables": "",
    }
    for kind in KINDS:
        mine = rows.get(kind, [])
        data |= {f"{kind}-TOTAL_FORMS": len(mine) + 2, f"{kind}-INITIAL_FORMS": 0}
        data |= {f"{kind}-{number}-{name}": value for number, row in enumerate(mine) for name, value in row.items()}
    return data


def send(client, session, **rows):
    return client.post(reverse("edit_session", args=[session.pk]), typed(**rows))


def test_a_plan_is_stored_and_shown_again(owner, session):
    phases = [{"number": "0", "title": "Baselines", "state": "done", "planned_min": "45 min", "actual_min": "1.5 h", "after": ""},
              {"title": "Tiles", "state": "blocked", "planned_min": "2 h 30 min", "after": "0"}]  # fmt: skip
    criteria = [
        {"speedup": "1.10", "at_least": "2", "workloads": "S=512", "kernel": "v3", "p90": "on", "correct": "on"},
        {"sm_busy": "70", "no_spills": "on"},
    ]
    blockers = [{"title": "No Nsight", "state": "open", "text": "driver"}]
    options = [{"title": "A", "minutes": "5h", "chosen": "on"}]
    assert send(owner, session, phases=phases, criteria=criteria, blockers=blockers, options=options).status_code == 302
    session.refresh_from_db()
    first, second = session.plan
    assert (first.planned_min, first.actual_min, second.number, second.planned_min, second.after) == (
        45,
        90,
        1,
        150,
        [0],
    )
    wanted, counted = session.wanted
    assert (counted.criterion.sm_busy, counted.criterion.no_spills) == (0.7, True)
    assert (wanted.speedup, wanted.at_least, wanted.p90, wanted.correct) == (1.1, 2, True, True)
    assert (session.hindrances[0].title, session.choices[0].minutes, session.choices[0].chosen) == (
        "No Nsight",
        300,
        True,
    )
    page = owner.get(reverse("edit_session", args=[session.pk])).content.decode()
    assert 'value="1 h 30 min"' in page and 'value="2 h 30 min"' in page and 'value="1.1"' in page
    assert 'name="phases-3-title"' in page, "two empty rows below"
    again = [dict(phases[0]), {"number": "1", "title": "", "state": "pending"}]
    assert send(owner, session, phases=again).status_code == 302
    session.refresh_from_db()
    assert [phase.title for phase in session.plan] == ["Baselines"], "an emptied row is gone"


@pytest.mark.parametrize(
    "kind, row, said",
    [
        ("phases", {"title": "A", "planned_min": "soon"}, "Give a time, such as 45 min or 1.5 h."),
        ("phases", {"title": "A", "planned_min": "99999 h"}, "Give a time"),
        ("phases", {"title": "A", "planned_min": "9999 h"}, "At most 100,000 minutes."),
        ("phases", {"title": "A", "after": "x"}, "Give numbers of phases, such as 5, 6."),
        ("phases", {"number": "0", "title": "A", "after": "7"}, "There is no phase 7."),
        ("phases", {"number": "0", "title": "A", "after": "0"}, "Phase 0 depends on itself."),
        ("phases", {"number": "x", "title": "A"}, "Enter a whole number."),
        ("phases", {"planned_min": "45 min"}, "Enter a title, or clear the row."),
        ("phases", {"title": "A", "state": "flying"}, "Select a valid choice."),
        ("criteria", {"speedup": "fast"}, "Enter a number."),
        ("criteria", {"speedup": "nan"}, "Enter a number."),
        ("criteria", {"speedup": "-1"}, "greater than or equal to 0.01"),
        ("criteria", {"kernel": "v3"}, "Enter a title, or clear the row."),
        ("options", {"title": "A", "minutes": "-5"}, "Give a time"),
        ("blockers", {"text": "what"}, "Enter a title, or clear the row."),
    ],
)
def test_bad_input_gets_a_sentence_and_loses_nothing(owner, session, kind, row, said):
    kept = {"title": "kept <b>words</b>", "state": "open"}
    answer = send(owner, session, **{"blockers": [kept], kind: [*([kept] if kind == "blockers" else []), row]})
    page = answer.content.decode()
    assert answer.status_code == 422
    assert said in page and "Not saved: see the marked field. Nothing that you typed is lost." in page
    assert "kept &lt;b&gt;words&lt;/b&gt;" in page
    for value in row.values():
        assert str(value) in page
    session.refresh_from_db()
    assert not any((session.phases, session.criteria, session.blockers, session.options))


def test_phases_that_wait_for_each_other_are_refused(owner, session):
    rows = [{"number": "0", "title": "A", "after": "1"}, {"number": "1", "title": "B", "after": "0"}]
    assert "Phase 0 depends on itself." in send(owner, session, phases=rows).content.decode()
    rows = [{"number": "3", "title": "A"}, {"number": "3", "title": "B"}]
    assert "Another phase is number 3." in send(owner, session, phases=rows).content.decode()


def test_more_rows_than_there_may_be(owner, session):
    answer = send(owner, session, blockers=[{"title": f"b{number}", "state": "open"} for number in range(60)])
    assert answer.status_code == 422


def test_a_form_that_was_cut_off_keeps_what_is_stored(owner, session):
    Session.objects.update(blockers=[{"title": "kept", "state": "open", "text": ""}])
    owner.post(reverse("edit_session", args=[session.pk]), {"title": "New title", "objective": ""})
    session.refresh_from_db()
    assert (session.title, session.blockers[0]["title"]) == ("New title", "kept")


def test_times_in_words():
    assert [in_words(value) for value in (None, 0, 45, 60, 90)] == ["", "0 min", "45 min", "1 h", "1 h 30 min"]
