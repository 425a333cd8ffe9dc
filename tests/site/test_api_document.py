"""The API as its own document describes it: every operation answers as declared."""

import json

import pytest
from cast import load
from daily import fill, repeated
from django.urls import reverse
from django.utils import timezone
from everything import SOURCE, filled, operations
from test_api import Api, is_problem

from kernels.tune_plan import TunePlan
from runs.api import access, problems
from runs.api.parameters import LISTED
from runs.api.site import api
from runs.models import (
    Answered,
    ApiToken,
    Import,
    Notice,
    Run,
    Session,
    Submission,
    Webhook,
)

FOR_ADMINS = ("/api/audit", "/api/people")


@pytest.fixture
def document():
    return json.loads(json.dumps(api.get_openapi_schema()))


@pytest.fixture
def writer(owner):
    return Api(ApiToken.objects.make(owner.user, "writes", writes=True, days=7)[1])


def holds(document, schema, value, where="answer"):
    """Whether a value is as a schema says: types, required members, no others where it is closed."""
    if "$ref" in schema:
        return holds(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], value, where)
    if "anyOf" in schema:
        errors = []
        for one in schema["anyOf"]:
            try:
                return holds(document, one, value, where)
            except AssertionError as error:
                errors.append(error)
        raise errors[0]
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
    kind = schema.get("type")
    if kind == "null":
        assert value is None, where
    elif kind:
        assert isinstance(value, kinds[kind]), (where, kind, value)
    for name in schema.get("required", ()):
        assert name in value, (where, name)
    if kind == "object" and "properties" in schema:
        for name, one in value.items():
            if name in schema["properties"]:
                holds(document, schema["properties"][name], one, f"{where}.{name}")
            else:
                assert schema.get("additionalProperties"), f"{where} has {name}, which is not declared"
    if kind == "array":
        for one in value[:3]:
            holds(document, schema["items"], one, f"{where}[]")
    return True


def test_the_document_has_every_address_with_its_answers_and_who_may_ask(document, stranger, owner):
    assert len(document["paths"]) >= 32
    for method, address, one in operations(document):
        assert {"200", "401", "422", "429"} <= set(one["responses"]), address
        for status, said in one["responses"].items():
            assert list(said["content"]) == ["application/json" if int(status) < 400 else "application/problem+json"]
        asked = {name for way in one["security"] for name in way}
        assert asked == ({"Token", "Session"} if method == "get" else {"Token"}), address
        assert one.get("description") or address == "/api/devices", address
    assert stranger.get("/api/openapi.json").json() == document
    assert stranger.get("/api/").status_code == 302
    assert '"http://testserver/api/runs?limit=5"</code>' in owner.get("/api/").content.decode(), "zsh expands ?"
    page = owner.get(reverse("api_docs")).content.decode()
    assert all(f"{method.upper()} {address}" in page for method, address, _ in operations(document))
    assert "https://" not in page and "<script>" not in page
    assert "`" not in page and "<code>p50_ms,speedup</code>" in page and "null" not in page
    unsaid = [(address, p["name"]) for method, address, one in operations(document) if method == "get"
              for p in one.get("parameters", ()) if p["in"] == "query" and not p["schema"].get("description")]  # fmt: skip
    assert unsaid == []


def test_every_read_answers_as_the_document_says_and_304_the_second_time(document, member, admin, stored):
    for method, address, one in operations(document):
        if method != "get" or "compare" in address:
            continue
        path, owner = filled(address, stored), admin if address in FOR_ADMINS else member
        answer = owner.get(path)
        assert answer.status_code == 200, (path, answer.content[:200])
        holds(document, one["responses"]["200"]["content"]["application/json"]["schema"], answer.json(), path)
        again = owner.get(path, headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b""), path
        assert owner.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
        assert "Content-Disposition" not in answer.headers


def test_nobody_reads_or_writes_without_a_token_or_a_session(document, stranger, stored):
    for method, address, _ in operations(document):
        assert is_problem(getattr(stranger, method)(filled(address, stored)), 401, "Authorization: Bearer"), address
    for path in ("/api/nosuch", "/api/submissions/%0A", "/api/kernels/gemm/a%0Ab%0D", "/api//"):
        assert is_problem(stranger.get(path), 404, "nothing at this address"), path


def test_links_and_status_pages_say_where_they_lead(owner, stranger, stored):
    (page,) = owner.get("/api/status").json()["pages"]
    assert (page["title"], page["parts"]) == ("Wall", [{"kind": "devices", "all": True, "chosen": []}])
    assert stranger.get(page["json"]).json()["title"] == "Wall"
    of_run, of_page = owner.get("/api/links").json()["links"]
    assert (of_run["opens"], of_page["url"]) == (f"run {stored['pk']}", page["url"])
    assert stranger.get(of_run["url"]).status_code == 200 and of_run["by"] == "olga"


def test_a_read_is_the_twin_of_its_page(owner, stored):
    twins = {f"/api/runs/{stored['pk']}": f"/runs/{stored['pk']}.json", "/api/kernels": "/kernels.json",
             "/api/leaderboard": "/leaderboard.json", "/api/changes?period=all": "/changes.json?period=all",
             "/api/tiers": "/tiers.json", "/api/devices": "/gpus.json",
             f"/api/compare?runs={stored['pk']}": f"/compare.json?runs={stored['pk']}",
             f"/api/sessions/{stored['session']}": f"/sessions/{stored['session']}.json",
             f"/api/imports/{stored['import']}": f"/import/{stored['import']}.json",
             "/api/judge?gpu=H200&operation=gemm&m=64&n=64&k=64&ms=1": "/judge.json?gpu=H200&operation=gemm&m=64&n=64&k=64&ms=1",
             "/api/{}".format(one := f"runs/{stored['pk']}/results/{stored['result']}"): f"/{one}.json"}  # fmt: skip
    for address, page in twins.items():
        assert owner.get(address).json() == owner.get(page).json(), address
    assert owner.get("/api/runs?limit=200").json()["runs"] == owner.get("/runs.json").json()["runs"]
    results = b"".join(owner.get("/results.json").streaming_content)
    assert owner.get("/api/results?limit=200").json()["results"] == json.loads(results)["results"][:200]


def test_a_kernels_results_come_by_pages_newest_first(owner, stored):
    file = json.loads(owner.get("/kernels/attention/sdpa.json").getvalue())
    assert file["kernel"] == "attention/sdpa"
    of_file = sorted(
        ({n: v for n, v in row.items() if n != "series"} for row in file["results"]), key=lambda r: -r["result"]
    )
    seen, cursor = [], ""
    while cursor is not None:
        page = owner.get(f"/api/kernels/attention/sdpa?limit=3&cursor={cursor}").json()
        seen, cursor = seen + page["results"], page["next"]
    assert len(seen) > 3 and seen == of_file
    workload = seen[0]["workload_key"]
    on = owner.get(f"/api/kernels/attention/sdpa/on/{workload}?limit=200").json()
    assert on["results"] == [row for row in seen if row["workload_key"] == workload] and on["next"] is None
    assert is_problem(owner.get("/api/kernels/attention/sdpa?cursor=x"), 422, "cursor")


@pytest.mark.parametrize("sort", ["", "-p50_ms"])
def test_cursors_give_every_result_once(owner, stored, sort):
    every = owner.get(f"/api/results?limit=200&sort={sort}").json()
    assert every["next"] is None and len(every["results"]) > 20
    seen, cursor = [], ""
    while cursor is not None:
        page = owner.get(f"/api/results?limit=7&sort={sort}&cursor={cursor}").json()
        seen += page["results"]
        cursor = page["next"]
    assert seen == every["results"]
    assert is_problem(owner.get("/api/results?cursor=nosuch"), 422, "leave it out for the first page")
    assert is_problem(owner.get("/api/results?q=kernel:nosuch"), 422, "Invalid search terms: ")
    assert owner.get("/api/runs").json()["next"] is None and LISTED >= 50


def test_watching_an_unchanged_run_reads_no_result(writer, stored, make_run, django_assert_max_num_queries):
    # The token and the run. Of one that waits, also what its place follows from: the waiting runs, the devices that take
    # runs, the runs at work, and the device time of the last day.
    for pk, queries in ((stored["pk"], 2), (make_run().pk, 6)):
        first = writer.get(f"/api/runs/{pk}/progress")
        with django_assert_max_num_queries(queries) as asked:
            again = writer.get(f"/api/runs/{pk}/progress", **{"If-None-Match": first.headers["ETag"]})
        assert again.status_code == 304
        assert not any("runs_result" in query["sql"] for query in asked.captured_queries)


# --- writes -----------------------------------------------------------------------------------------------------------


def test_a_run_of_a_named_and_of_a_whole_config_is_queued(writer, owner, stored):
    named = writer.post("/api/runs", {"config": "smoke", "gpu": "epyc", "kernels": ["sdpa-math"], "effort": "quick"})
    assert named.status_code == 201, named.content
    run = Run.objects.get(pk=named.json()["id"])
    assert (run.user, run.state) == (owner.user, "queued") and set(run.spec.kernels) == {"sdpa", "sdpa-math"}
    whole = owner.get("/api/configs/smoke").json()
    again = writer.post("/api/runs", {"config": whole, "gpu": "epyc", "title": "mine"})
    assert again.status_code == 201, again.content
    assert Run.objects.get(pk=again.json()["id"]).spec.workloads == run.spec.workloads
    said = writer.post("/api/runs", {"config": whole | {"title": "Faster 🚀"}, "gpu": "epyc"})
    assert (said.status_code, said.json().get("title")) == (201, "Faster 🚀"), said.content
    for body, field, detail in [
        ({"config": "nosuch", "gpu": "epyc"}, "config", "There is no config 'nosuch'"),
        ({"config": "smoke", "gpu": "mi300"}, "gpu", "There is no device 'mi300'"),
        ({"config": "smoke", "gpu": "epyc", "kernels": ["nosuch"]}, "kernels", "nosuch"),
        ({"config": {"x": 1}, "gpu": "epyc"}, "config", "config: kernels: Field required"),
        ({"config": whole | {"operation": "🚀"}, "gpu": "epyc"}, "config", "🚀"),
        ({"config": whole, "gpu": "epyc", "effort": "quick"}, "effort", "Write them in the config"),
    ]:
        refused = writer.post("/api/runs", body)
        assert is_problem(refused, 422, detail) and refused.json()["field"] == field, body
    assert Run.objects.filter(state="queued").count() == 3


def test_a_search_is_read_and_another_is_queued(writer, owner, stored, gpu):
    said = writer.get(f"/api/runs/{stored['search']}/search").json()
    assert said["answer"].startswith("rows=") and "confirmed / promised" in said["curse"]
    assert len(said["search"]["trials"]) == 24 and said["state"] == "done"
    assert is_problem(writer.get(f"/api/runs/{stored['pk']}/search"), 404, "is not a search")
    wanted = {
        "kernel": "layer_norm/triton-layer-norm",
        "config": "layer-norm",
        "gpu": gpu.uuid,
        "trials": 12,
        "seed": 3,
    }
    answer = writer.post("/api/searches", wanted)
    assert answer.status_code == 201, answer.content
    run = Run.objects.get(pk=answer.json()["id"])
    assert run.plan == TunePlan(trials=12, minutes=20, seed=3) and (run.gpu, run.user) == (gpu, owner.user)
    for body, field, detail in [
        (wanted | {"kernel": "layer_norm/eager"}, "kernel", "not one of the available choices"),
        (wanted | {"config": "gemm"}, "config", "choose one for layer_norm"),
        (wanted | {"trials": 0}, "trials", "greater than or equal to 1"),
        (wanted | {"seed": False}, "seed", "valid integer"),
        (wanted | {"trials": "12"}, "trials", "valid integer"),
        (wanted | {"gpu": "mi300"}, "gpu", "There is no device 'mi300'"),
        (wanted | {"gpu": "epyc"}, "gpu", "cannot run triton-layer-norm"),
    ]:
        refused = writer.post("/api/searches", body)
        assert is_problem(refused, 422, detail) and refused.json()["field"] == field, body


def test_lists_of_the_team_come_in_pages(owner, stored):
    more = [Session.objects.create(title=f"effort {n}").pk for n in range(4)]
    first = owner.get("/api/sessions?limit=3").json()
    assert [one["id"] for one in first["sessions"]] == more[:0:-1]
    rest = owner.get(f"/api/sessions?limit=3&cursor={first['next']}").json()
    assert [one["id"] for one in rest["sessions"]] == [more[0], stored["session"]] and rest["next"] is None
    assert rest["sessions"][1]["by"] == "olga" and rest["sessions"][1]["objective"] == "1.10x"
    assert owner.get("/api/imports").json()["imports"][0]["outcome"]
    assert is_problem(owner.get("/api/notices?cursor=x"), 422, "leave it out for the first page")


def test_notices_are_read_as_webhooks_get_them_and_each_person_sees_only_their_own_choices(owner, member, stored):
    (notice,) = owner.get("/api/notices").json()["notices"]
    assert notice == Notice.objects.get().body()
    mine = owner.get("/api/notices/mine").json()
    assert mine["mail"]["kinds"] == ["run"] and [one["kinds"] for one in mine["webhooks"]] == [["record"]]
    assert Webhook.objects.get().secret not in json.dumps(mine)
    theirs = member.get("/api/notices/mine").json()
    assert theirs["mail"]["kinds"] == [] and theirs["webhooks"] == []


def test_a_claim_is_judged_and_a_fault_names_its_field(owner):
    claim = "gpu=H100+SXM&operation=gemm&m=8192&n=8192&k=8192&dtype=bfloat16"
    said = owner.get(f"/api/judge?{claim}&tflops=5000").json()
    assert said["verdict"] and said["why"] and said["steps"]
    assert is_problem(owner.get(f"/api/judge?{claim}&ms=fast"), 422, "use a number, such as 12.27")
    assert owner.get(f"/api/judge?{claim}&ms=fast").json()["field"] == "ms"
    assert {one["model"] for one in owner.get("/api/judge").json()["gpus"]} >= {"H100 SXM"}


def test_claims_are_imported(writer, owner):
    body = {"text": "kernel,ms\nv1,0.5\n", "about": "attention fp16 B=4 H=16 S=512 D=64 on NVIDIA L4", "name": "theirs"}
    first = writer.post("/api/imports", body)
    assert first.status_code == 201, first.content
    assert Import.objects.get(pk=first.json()["imported"]).user == owner.user
    again = writer.post("/api/imports", body)
    assert (again.status_code, again.json()["imported"]) == (200, None) and "Nothing new" in again.json()["said"]
    assert writer.post("/api/imports", {"text": "x"}).status_code in (200, 422)


def test_a_write_with_a_key_is_done_once(writer, stored):
    body = {"files": {"mine.py": SOURCE}, "gpu": "epyc", "effort": "quick"}
    first = writer.post("/api/submissions", body, **{"Idempotency-Key": "one"})
    again = writer.post("/api/submissions", body, **{"Idempotency-Key": "one"})
    assert first.status_code == again.status_code == 201 and first.json() == again.json()
    assert Run.objects.filter(state="queued").count() == 1
    other = writer.post("/api/submissions", body | {"note": "x"}, **{"Idempotency-Key": "one"})
    assert is_problem(other, 409, "take a new one for each")
    assert writer.post("/api/submissions", body, **{"Idempotency-Key": "two"}).status_code == 201
    assert Run.objects.filter(state="queued").count() == 2
    assert is_problem(writer.post("/api/submissions", body, **{"Idempotency-Key": "x" * 201}), 422, "Idempotency-Key")


def test_a_refused_write_keeps_no_key_and_stores_nothing(writer, stored):
    wrong = {"files": {"other.py": SOURCE.replace("mine", "other")}, "gpu": "epyc", "config": "nosuch"}
    refused = writer.post("/api/submissions", wrong, **{"Idempotency-Key": "k"})
    assert refused.status_code == 422 and not Answered.objects.exists()
    assert not Submission.objects.filter(name="other").exists()
    assert writer.post("/api/submissions", wrong | {"config": ""}, **{"Idempotency-Key": "k"}).status_code == 201


def test_too_many_requests_of_one_token_wait_and_those_of_another_do_not(writer, owner, member, monkeypatch):
    monkeypatch.setattr(access.READS, "most", 3)
    assert [writer.get("/api/me").status_code for _ in range(4)] == [200, 200, 200, 429]
    refused = writer.get("/api/me")
    assert is_problem(refused, 429, "ask again in") and 1 <= int(refused.headers["Retry-After"]) <= 10
    other = Api(ApiToken.objects.make(member.user, "x", writes=False, days=1)[1])
    assert other.get("/api/me").status_code == owner.get("/api/me").status_code == 200


def test_a_body_that_is_too_large_is_refused(writer, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    assert is_problem(writer.post("/api/submissions", {"files": {"a.py": "#" * 2000}}), 413, "at most 1,000 bytes")


def test_a_fault_is_named_by_the_fields_that_somebody_wrote():
    assert (
        problems._name(("body", "sent", "against", "list[tagged-union[int,FileIn]]", 0, "number")) == "against.0.number"
    )
    assert problems._name(("body", "sent", "files", "a[1].py")) == "files.a[1].py"


def test_a_run_is_held_against_an_earlier_one_and_against_the_best(writer, stored, exported):
    again = load(exported, "again")
    body = {"run": again.pk, "against": [stored["pk"]], "max_regression": 0.02}
    answer = writer.post("/api/gate", body)
    assert answer.status_code == 200, answer.content
    said = answer.json()
    assert said["status"] == {"holds": 0, "fails": 1, "cannot tell": 2}[said["word"]]
    assert said["sentence"] in said["text"] and "<testsuite" in said["junit"] and said["rows"]
    best = writer.post("/api/gate", {"run": again.pk}).json()
    assert best["status"] == 2 and best["rows"] == []  # a demo run has no card to compare on
    assert is_problem(writer.post("/api/gate", {"run": again.pk, "max_regression": 2}), 422, "less than 1")
    assert is_problem(writer.post("/api/gate", body | {"against": [999_999]}), 404, "There is no run 999999.")
    assert writer.client.post("/api/gate", "", content_type="application/json").status_code == 422
    assert writer.post("/api/gate", body | {"max_regression": "2%"}).json() == said
    assert writer.post("/api/gate", {"run": again.pk, "against": ["best"]}).json() == best
    wrong = writer.post("/api/gate", {"run": again.pk, "against": ["worst"]})
    assert is_problem(wrong, 422, "should be 'best'") and all("[" not in one["field"] for one in wrong.json()["errors"])
    assert is_problem(writer.post("/api/gate", body | {"max_regression": "a lot"}), 422, "valid number")
    Run.objects.filter(pk=again.pk).update(state="running")
    running = writer.post("/api/gate", {"run": again.pk}).json()
    assert running["status"] == 2 and running["sentence"].endswith(f"Run {again.pk} has not ended.")


def test_a_file_is_held_against_a_run_another_file_and_the_best(writer, gpu):
    runs = fill(gpu, repeated(3, environment={"uuid": gpu.uuid}))
    export = writer.get(f"/api/runs/{runs[2].pk}").json()
    for of_one in (arm for m in export["measurements"] for arm in m["results"]):
        of_one.pop("samples_ns"), of_one.pop("source")
    file = {"name": "mine.json", "export": export}
    assert Run.objects.filter(pk=runs[2].pk).delete()[0]
    for run, against, whose in (
        (file, [runs[0].pk], f"run {runs[0].pk}"), (runs[0].pk, [file], "mine.json"), (file, [file], "mine.json"),
    ):  # fmt: skip
        said = writer.post("/api/gate", {"run": run, "against": against, "max_regression": 0.05}).json()
        assert {row["against"] for row in said["rows"]} == {whose} and said["word"] == "holds", said
        assert bool(said["url"]) == isinstance(run, int)
    best = writer.post("/api/gate", {"run": file, "max_regression": 0.05}).json()
    assert best["rows"] and {row["against"] for row in best["rows"]} <= {f"run {run.pk}" for run in runs[:2]}
    other = export | {"environment": export["environment"] | {"uuid": "GPU-of-another-host"}}
    none = writer.post("/api/gate", {"run": file | {"export": other}}).json()
    assert none["status"] == 2 and "no earlier run of these workloads on this card" in none["sentence"]
    tiny = json.loads(json.dumps(export))
    tiny["measurements"][0]["results"][1]["speedup_low"] = 1e-320
    assert is_problem(writer.post("/api/gate", {"run": {"export": tiny}}), 422, "no measurement has a speedup of")
    strange = export | {"environment": export["environment"] | {"device": [[1]]}}
    assert writer.post("/api/gate", {"run": {"export": strange}}).json()["status"] == 2, "it is compared with nothing"
    for wrong in ({}, {"format": "benchsite-run/2"}, export | {"measurements": 7}):
        assert is_problem(writer.post("/api/gate", {"run": {"export": wrong}}), 422, "file: ")
    assert is_problem(writer.post("/api/gate", {"run": "12"}), 422, "valid integer")


def test_best_is_the_best_earlier_run_that_nobody_disturbed(writer, gpu):
    runs = fill(gpu, repeated(4))
    Run.objects.filter(pk=runs[1].pk).update(contended=True)
    Run.objects.filter(pk=runs[2].pk).update(withdrawn_at=timezone.now())
    said = writer.post("/api/gate", {"run": runs[3].pk, "against": "best", "max_regression": 0.05}).json()
    assert said["rows"] and {row["against"] for row in said["rows"]} == {f"run {runs[0].pk}"}
    first = writer.post("/api/gate", {"run": runs[0].pk}).json()
    assert first["rows"] == [] and first["status"] == 2
