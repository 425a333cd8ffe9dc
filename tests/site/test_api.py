"""The API and its tokens: who may do what, what is refused and how, and what is stored of a token."""

import json
from datetime import timedelta

import pytest
from cast import load
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from everything import SOURCE

from runs.models import ApiToken, Gpu, Run, Submission

READS = ["/api/me", "/api/runs"]


@pytest.fixture
def ready(cpu, configs):
    Gpu.objects.filter(pk=cpu.pk).update(no_submissions="")
    return cpu


class Api:
    """A program with a token."""

    def __init__(self, token):
        self.client = Client(enforce_csrf_checks=True, headers={"Authorization": f"Bearer {token}"})

    def get(self, path, **headers):
        return self.client.get(path, headers=headers)

    def post(self, path, body=None, **headers):
        return self.client.post(path, json.dumps(body or {}), content_type="application/json", headers=headers)


@pytest.fixture
def tokens(owner):
    return {w: ApiToken.objects.make(owner.user, w, writes=w == "write", days=7) for w in ("read", "write")}


@pytest.fixture
def reader(tokens):
    return Api(tokens["read"][1])


@pytest.fixture
def writer(tokens):
    return Api(tokens["write"][1])


def is_problem(answer, status, detail):
    assert answer.status_code == status, answer.content
    assert answer.headers["Content-Type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status and body["title"] and detail in body["detail"]
    return True


# --- faults -----------------------------------------------------------------------------------------------------------


def test_a_fault_of_the_site_is_a_problem_too_and_a_page_outside_the_api(reader, owner, monkeypatch):
    monkeypatch.setattr("runs.api.reads.reverse", None)
    monkeypatch.setattr("runs.views.runs.chosen", None)
    reader.client.raise_request_exception = owner.raise_request_exception = False
    assert is_problem(reader.get("/api/me"), 500, "log has the error")
    page = owner.get("/runs/")
    assert page.status_code == 500 and "went wrong on our side" in page.content.decode()


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_a_token_is_shown_once_and_only_its_hash_is_stored(owner):
    page = owner.post(reverse("tokens"), {"name": "laptop", "rights": "write", "days": "30"})
    text = page.context["text"]
    row = ApiToken.objects.get()
    assert text in page.content.decode() and text not in owner.get(reverse("tokens")).content.decode()
    assert text not in str(ApiToken.objects.values().get()) and len(row.digest) == 64
    assert row.start in text and len(row.start) < 15
    assert row.writes and row.user == owner.user and (row.expires_at - timezone.now()).days in (29, 30)
    assert "no-store" in page.headers["Cache-Control"]
    assert Api(text).get("/api/me").json()["user"] == "olga"


def test_a_token_needs_a_name_and_a_known_length(owner):
    assert owner.post(reverse("tokens"), {"name": "", "rights": "read", "days": "30"}).status_code == 422
    assert owner.post(reverse("tokens"), {"name": "x", "rights": "admin", "days": "9999"}).status_code == 422
    assert not ApiToken.objects.exists()


def test_a_token_that_is_wrong_revoked_expired_or_of_a_closed_account_opens_nothing(owner, tokens, reader):
    row, text = tokens["read"]
    assert is_problem(Client().get("/api/me"), 401, "Authorization: Bearer")
    assert is_problem(Api(text[:-1] + "x").get("/api/me"), 401, "unknown, expired or revoked")
    assert is_problem(Api(row.digest).get("/api/me"), 401, "unknown")
    assert reader.get("/api/me").status_code == 200
    ApiToken.objects.filter(pk=row.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert is_problem(reader.get("/api/me"), 401, "expired")
    ApiToken.objects.filter(pk=row.pk).update(expires_at=timezone.now() + timedelta(days=1))
    owner.user.is_active = False
    owner.user.save()
    assert is_problem(reader.get("/api/me"), 401, "revoked")
    owner.user.is_active = True
    owner.user.save()
    row.revoke()
    assert is_problem(reader.get("/api/me"), 401, "revoked")


def test_only_its_person_revokes_a_token(owner, member, stranger, tokens, reader):
    address = reverse("revoke_token", args=[tokens["read"][0].pk])
    assert member.post(address).status_code == 404
    assert stranger.post(address).status_code == 302
    assert owner.get(address).status_code == 405
    assert reader.get("/api/me").status_code == 200
    assert owner.post(address).status_code == 302
    assert reader.get("/api/me").status_code == 401
    assert tokens["read"][0].start not in member.get(reverse("tokens")).content.decode()


def test_the_last_use_is_noted(tokens, reader):
    reader.get("/api/me")
    assert timezone.now() - ApiToken.objects.get(pk=tokens["read"][0].pk).last_used_at < timedelta(minutes=1)


def test_a_session_reads_and_writes_nothing_and_a_token_opens_no_page(owner, reader, make_run):
    run = make_run()
    assert owner.get("/api/runs").json()["runs"][0]["id"] == run.pk
    assert owner.get("/api/me").json() == {
        "user": "olga",
        "writes": False,
        "expires_at": None,
        "site": "http://testserver/",
    }
    assert is_problem(owner.post(f"/api/runs/{run.pk}/cancel"), 401, "Authorization: Bearer")
    run.refresh_from_db()
    assert not run.cancel_requested and run.state == "queued"
    assert reader.client.get("/runs/").status_code == 302


# --- reading and writing ----------------------------------------------------------------------------------------------


def test_a_token_that_reads_writes_nothing(reader, make_run, ready):
    run = make_run()
    assert is_problem(reader.post("/api/submissions", {"files": {"a.py": SOURCE}}), 403, "/tokens/")
    assert is_problem(reader.post(f"/api/runs/{run.pk}/cancel"), 403, "/tokens/")
    assert not Submission.objects.exists() and not Run.objects.get(pk=run.pk).cancel_requested


def test_a_kernel_is_submitted_and_its_run_is_queued(writer, owner, ready):
    body = {"files": {"mine.py": SOURCE}, "gpu": "epyc", "config": "swish", "effort": "quick", "message": "first"}
    answer = writer.post("/api/submissions", body)
    assert answer.status_code == 201
    said, run, one = answer.json(), Run.objects.get(), Submission.objects.get()
    assert (said["kernel"], said["new"], said["run"]["id"]) == (one.kernel, True, run.pk)
    assert (one.user, one.message, run.user) == (owner.user, "first", owner.user)
    assert run.spec.protocol.isolated and one.kernel in run.spec.kernels
    sizes = {"sweep": ["rows=64", "cols=128"]}
    writer.post("/api/submissions", {"files": {"mine.py": SOURCE}, "gpu": "epyc", **sizes})
    assert [w.label for w in Run.objects.latest("pk").spec.workloads] == ["swish fp32 64 x 128"]
    again = writer.post("/api/submissions", {"files": {"mine.py": SOURCE}})
    assert (again.status_code, again.json()["new"], again.json()["run"]) == (200, False, None)
    child = writer.post("/api/submissions", {"files": {"mine.py": SOURCE + "# 2\n"}, "parent": one.kernel})
    assert Submission.objects.get(sha256__startswith=child.json()["submission"]).parent == one


@pytest.mark.parametrize(
    ("body", "field", "detail"),
    [
        ({}, "files", "Send files, or git."),
        ({"files": {"a.py": 3}}, "files.a.py", "input should be a valid string"),
        ({"files": {}, "colour": 1}, "colour", "extra inputs are not permitted"),
        ({"files": {"a.py": "\x00"}}, "body", "may not hold the character NUL"),
        ({"files": {"\ud800": ""}}, "body", "half a surrogate pair"),
        ({"files": {"a.py": "x = 1"}}, "files", "No file declares a kernel"),
        (
            {"files": {"a.py": "x = " + "-" * 20_000 + "1"}},
            "files",
            "a.py cannot be read: expressions are nested too deeply",
        ),
        ({"files": {"mine.py": SOURCE}, "gpu": "mi300"}, "gpu", "There is no device 'mi300'; there are: AMD EPYC."),
        ({"files": {"mine.py": SOURCE}, "gpu": "cpu", "config": "nosuch"}, "config", "There is no config 'nosuch'."),
        (
            {"files": {"mine.py": SOURCE}, "gpu": "cpu", "config": "smoke"},
            "config",
            "The config smoke measures attention; the kernel mine computes swish.",
        ),
        (
            {"files": {"mine.py": SOURCE}, "gpu": "cpu", "sweep": ["seq_len=8"]},
            "sweep",
            "seq_len",
        ),
        ({"files": {"mine.py": SOURCE}, "gpu": "cpu", "effort": "much"}, "effort", "there are quick, normal, thorough"),
        ({"files": {"mine.py": SOURCE}, "gpu": ["cpu"]}, "gpu", "input should be a valid string"),
        ({"files": {"mine.py": SOURCE}, "parent": "nosuch"}, "parent", "There is no submission nosuch."),
    ],
)
def test_what_is_refused_names_the_field_and_what_to_change(writer, ready, body, field, detail):
    answer = writer.post("/api/submissions", body)
    assert is_problem(answer, 422, detail) and answer.json()["field"] == field
    assert not Run.objects.exists() and not Submission.objects.exists()


def test_a_parent_of_another_operation_is_refused(writer, ready):
    one = writer.post("/api/submissions", {"files": {"mine.py": SOURCE}}).json()
    other = SOURCE.replace('"swish"', '"gelu"')
    answer = writer.post("/api/submissions", {"files": {"mine.py": other}, "parent": one["kernel"]})
    assert is_problem(answer, 422, "is a kernel of swish, so no kernel of gelu is a change of it")
    assert Submission.objects.count() == 1


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("/api/results?foo=1", "There is no parameter 'foo'; there are "),
        ("/api/runs?foo=1", "There is no parameter 'foo'; there are "),
        ("/api/kernels/swish/eager?foo=1", "There is no parameter 'foo'; there are "),
        ("/api/kernels/swish/eager/on/any?foo=1", "There is no parameter 'foo'; there are "),
        ("/api/runs?state=nonsense", "'nonsense' is not a state; there are "),
        ("/api/runs?by=anybody", "there is only `me`"),
        *(
            (f"/api/{name}?colour=1", "There is no parameter 'colour'")
            for name in ("leaderboard", "changes", "submissions", "sessions", "imports", "notices", "tiers")
        ),
    ],
)
def test_an_unknown_filter_is_an_error(reader, address, said):
    assert is_problem(reader.get(address), 422, said)


def test_an_answer_that_did_not_change_has_the_same_etag(reader, make_run):
    run = make_run()
    for address in ("/api/runs", f"/api/runs/{run.pk}/progress"):
        first = reader.get(address)
        again = reader.client.get(address, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.headers["ETag"], again.content) == (304, first.headers["ETag"], b"")


@pytest.mark.parametrize(
    ("raw", "status", "detail"),
    [(b"{", 400, "JSON"), (b"[1]", 422, "dictionary"), (b"\xff", 400, "JSON"), (b"", 422, "required")],
)
def test_a_body_that_is_no_object_is_said(writer, raw, status, detail):
    assert is_problem(writer.client.post("/api/submissions", raw, content_type="application/json"), status, detail)


def test_runs_are_listed_in_pages(reader, make_run):
    made = [make_run(title=f"run {n}").pk for n in range(5)]
    first = reader.get("/api/runs?limit=3").json()
    assert [run["id"] for run in first["runs"]] == made[:1:-1] and first["next"] == str(made[2])
    rest = reader.get(f"/api/runs?limit=3&cursor={first['next']}").json()
    assert [run["id"] for run in rest["runs"]] == made[1::-1] and rest["next"] is None
    assert reader.get("/api/runs?limit=5").json()["next"] is None
    assert is_problem(reader.get("/api/runs?limit=-1"), 422, "limit: input should be greater than or equal to 1")
    assert is_problem(reader.get(f"/api/runs?cursor={'9' * 30}"), 422, "cursor")


def test_a_run_is_read_with_its_table_and_an_etag(reader, make_run, ready):
    run = make_run(title="mine")
    answer = reader.get(f"/api/runs/{run.pk}/progress")
    body = answer.json()
    assert (body["id"], body["state"], body["final"], body["place"], body["results"]) == (
        run.pk,
        "queued",
        False,
        1,
        [],
    )
    same = reader.get(f"/api/runs/{run.pk}/progress", **{"If-None-Match": answer.headers["ETag"]})
    assert (same.status_code, same.content) == (304, b"")
    Run.objects.filter(pk=run.pk).update(state="failed", message="The device is gone.")
    changed = reader.get(f"/api/runs/{run.pk}/progress", **{"If-None-Match": answer.headers["ETag"]})
    assert changed.json()["final"] and changed.json()["message"] == "The device is gone."


def test_an_ended_run_has_its_results_as_rows_and_as_text(reader, exported, db):
    run = load(exported, "api")
    body = reader.get(f"/api/runs/{run.pk}/progress").json()
    assert {row["kernel"] for row in body["results"]} >= {"sdpa"} and all("verdict" in row for row in body["results"])
    assert "sdpa" in body["text"] and not body["contended"] and "contended" not in body["text"]
    Run.objects.filter(pk=body["id"]).update(contended=True)
    later = reader.get(f"/api/runs/{body['id']}/progress").json()
    assert later["contended"] and "The run is contended: other processes used the device." in later["text"]
    other = load(exported, "api2")
    compared = reader.get(f"/api/compare/{run.pk}...{other.pk}")
    assert compared.status_code == 409 or compared.json()["text"]
    assert is_problem(reader.get(f"/api/compare/{run.pk}...{run.pk}"), 409, "same run")


def test_a_run_is_measured_again_from_what_the_api_says_of_it(writer, measured, gpu):
    """What `gate --until-decided` does: another number of processes, all else as it was."""
    run = measured(count=2)
    said = writer.get(f"/api/runs/{run.pk}").json()
    Gpu.objects.filter(pk=gpu.pk).update(uuid=said["environment"]["uuid"])  # the fixture's has a name of its own
    config = said["config"] | {"protocol": said["config"]["protocol"] | {"processes": 7}}
    answer = writer.post("/api/runs", {"config": config, "gpu": said["environment"]["uuid"], "title": "again"})
    assert answer.status_code == 201, answer.content
    again = Run.objects.get(pk=answer.json()["id"])
    assert again.gpu == gpu and again.spec.protocol.processes == 7
    assert (again.spec.kernels, again.spec.workloads) == (run.spec.kernels, run.spec.workloads)
    assert again.spec.protocol.model_copy(update={"processes": 1}) == run.spec.protocol.model_copy(
        update={"processes": 1}
    )


def test_a_run_is_cancelled(writer, make_run):
    run = make_run()
    answer = writer.post(f"/api/runs/{run.pk}/cancel")
    assert (
        answer.json()["state"] == "cancelled" and answer.json()["said"] == "Cancelled before it was sent to a device."
    )


def test_what_is_not_there_and_the_wrong_method_are_problems(reader, writer):
    assert is_problem(reader.get("/api/runs/999999"), 404, "There is no run 999999.")
    assert is_problem(reader.get("/api/runs/999999/progress"), 404, "There is no run 999999.")
    assert is_problem(reader.get("/api/runs/x"), 404, "/api/ lists what there is")
    assert is_problem(reader.get("/api/compare/1...999999"), 404, "there is no run")
    assert is_problem(writer.get("/api/searches"), 405, "answers POST, not GET")
    assert is_problem(writer.post("/api/results"), 405, "answers GET")


def test_the_client_is_served_to_anybody(stranger):
    answer = stranger.get("/client.py")
    assert answer.status_code == 200 and answer.headers["Content-Type"].startswith("text/x-python")
    compile(answer.content, "client.py", "exec")


# --- a kernel in a repository -----------------------------------------------------------------------------------------

THERE = {
    "url": "https://git.example.org/team/kernels.git", "commit": "0123456789abcdef" * 2 + "01234567", "folder": "",
    "operation": "swish", "kernel": "mine",
}  # fmt: skip


def test_a_kernel_in_a_repository_is_submitted_and_read_again(writer, ready):
    made = writer.post("/api/submissions", {"git": THERE, "gpu": "AMD"})
    assert made.status_code == 201 and made.json()["new"] and made.json()["run"]["id"]
    read = writer.get(f"/api/submissions/{made.json()['submission']}").json()
    assert read["files"] == {} and read["git"] == {name: THERE[name] for name in ("url", "commit", "folder", "kernel")}
    assert writer.post("/api/submissions", {"git": THERE}).status_code == 200


@pytest.mark.parametrize(
    ("more", "field", "why"),
    [
        ({"commit": "main"}, "git.commit", "The commit must have all 40 hexadecimal digits"),
        ({"url": "ftp://host/x"}, "git.url", "The address must begin with"),
        (
            {"operation": "problem"},
            "git.operation",
            "A kernel with its own problem cannot be submitted from a repository",
        ),
        ({"operation": "poetry"}, "git.operation", "There is no such operation; there are"),
    ],
)
def test_a_wrong_field_of_a_repository_is_a_problem_that_names_it(writer, ready, more, field, why):
    answer = writer.post("/api/submissions", {"git": THERE | more})
    assert is_problem(answer, 422, why) and answer.json()["field"] == field


def test_files_and_a_repository_together_are_a_problem(writer, ready):
    both = writer.post("/api/submissions", {"git": THERE, "files": {"mine.py": "x"}})
    assert is_problem(both, 422, "Send files or git, not both.")
    assert is_problem(writer.post("/api/submissions", {}), 422, "Send files, or git.")
