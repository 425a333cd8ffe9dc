"""Claims of others: what is imported once, what is refused and why, what counts nowhere, and what cannot run script."""

import csv
import io
import json
import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.urls import reverse

from runs.models import Claim, Import, Kernel, Measurement, Result, Run, Workload
from runs.pipeline.importer import TooMany, import_claims, load_sample_claims, samples
from runs.queries.claims import COLUMNS, PER_PAGE
from runs.views import imports

ROW = {"operation": "gemm", "m": 8192, "n": 8192, "k": 8192, "dtype": "bf16", "kernel": "mine", "gpu": "NVIDIA H200",
       "p50_ms": 1.6}  # fmt: skip
SCRIPT = "<script>alert(1)</script>"


def put(rows, name="rows.json", **more):
    return import_claims(io.StringIO(json.dumps(rows)), name, **more)


def page(client, where, status=200):
    answer = client.get(where if isinstance(where, str) else where.get_absolute_url())
    assert answer.status_code == status
    return answer.content.decode()


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_rows_that_are_imported_and_rows_that_are_not_with_their_reasons():
    good = [ROW | {"p50_ms": 1 + number / 100} for number in range(31)]
    bad = [ROW | {"p50_ms": "fast"}, ROW | {"m": None}, {}, ROW | {"operation": "fft"}, 7]
    outcome = put([*good, *bad])
    assert outcome.sentence == "31 of 36 rows imported, 5 not."
    assert outcome.refusals == [
        ("row 32", "p50_ms is not a number: 'fast'"),
        ("row 33", "it does not say m of gemm"),
        ("row 34", "it has no time of a call (median, mean, or plain) and no TFLOP/s"),
        ("row 35", "the operation 'fft' is not known here"),
        ("row 36", "it is not a JSON object, but 7"),
    ]
    assert Claim.objects.count() == outcome.imported.taken == 31


@pytest.mark.django_db
def test_the_same_file_twice_adds_nothing_and_a_longer_one_what_is_new():
    rows = [ROW, ROW | {"kernel": "other"}]
    first = put(rows)
    again = put(rows, "copy.json")
    assert (again.sentence, again.imported, again.before) == (
        "Nothing new: all 2 rows are here already.",
        None,
        first.imported,
    )
    assert Import.objects.count() == 1
    longer = put([*rows, ROW | {"kernel": "third"}, ROW | {"kernel": "third"}])
    assert longer.sentence == "1 of 4 rows imported, 3 were here already."
    assert Claim.objects.count() == 3


@pytest.mark.django_db
def test_a_row_with_several_kernels_counts_once():
    text = "(M, N, K);aten-latency;mine-latency\n(8, 8, 8);1;2\n(16, 8, 8);1;OOM\n"
    outcome = import_claims(io.StringIO(text), "op_gemm_x.csv", about="bf16 on NVIDIA H200")
    assert outcome.sentence == "2 of 2 rows imported." and Claim.objects.count() == 3
    assert outcome.refusals == [("line 3, mine", "ms is not a number: 'OOM'")]


@pytest.mark.django_db
def test_too_many_rows_leave_nothing_behind():
    with pytest.raises(TooMany):
        put([ROW | {"m": size} for size in range(1, 1200)], most=1000)
    assert Claim.objects.count() == Import.objects.count() == 0


@pytest.mark.django_db
def test_the_samples_are_imported_once_and_completely():
    first = load_sample_claims()
    assert len(first) == len(list(samples().glob("*.json"))) == 5
    assert all(one.refused == 0 and one.taken == one.rows for one in first)
    assert load_sample_claims() == [] and Import.objects.exclude(sample="").count() == 5


# --- they count nowhere -----------------------------------------------------------------------------------------------


def test_claims_count_in_no_page_of_what_was_measured(owner, demo):
    pages = [reverse(name) for name in (
        "overview", "runs", "results", "kernels", "tiers", "status", "gpus", "runs_csv", "results_csv", "results_json",
        "kernels_csv", "kernels_json", "tiers_csv", "tiers_json",
    )]  # fmt: skip
    tables = (Run, Measurement, Result, Kernel, Workload)

    def told():
        return [owner.get(one).getvalue() if owner.get(one).streaming else owner.get(one).content for one in pages]

    before, counted = told(), [table.objects.count() for table in tables]
    fast = {"operation": "attention", "batch": 4, "heads": 16, "seq_len": 512, "head_dim": 64, "dtype": "float16",
            "gpu": "NVIDIA H200", "kernel": "triton-flash", "p50_ms": 0.001, "speedup": 99}  # fmt: skip
    assert put([fast]).taken == 1
    load_sample_claims()
    assert [table.objects.count() for table in tables] == counted
    assert without_tokens(told()) == without_tokens(before)


def without_tokens(pages):
    return [re.sub(rb'csrfmiddlewaretoken" value="[^"]+"|\d+ (?:s|min) ago', b"", one) for one in pages]


def test_no_table_of_claims_refers_to_what_was_measured():
    related = {field.related_model.__name__ for table in (Claim, Import) for field in table._meta.get_fields()
               if field.is_relation}  # fmt: skip
    assert related == {"Claim", "Import", "Session", "User"}, "a session quotes claims; it measures nothing itself"


# --- the pages --------------------------------------------------------------------------------------------------------


def test_a_pasted_text_becomes_an_import(owner):
    answer = owner.post(reverse("imports"), {"text": json.dumps([ROW, ROW | {"k": "?"}]), "about": ""}, follow=True)
    text = answer.content.decode()
    assert "1 of 2 rows imported, 1 not." in text and "row 2: k is not a whole number: &#x27;?&#x27;." in text
    assert "Not measured by this site. It does not count in tiers, bests or leaderboards." in text
    assert Import.objects.get().user == owner.user
    again = owner.post(reverse("imports"), {"text": json.dumps([ROW])}, follow=True)
    assert "Nothing new: the row is here already." in again.content.decode()
    assert again.redirect_chain[0][0] == Import.objects.get().get_absolute_url()


def test_a_file_and_what_its_rows_do_not_say(owner):
    file = SimpleUploadedFile("mine.csv", b"B;H;S;time_ms\n8;16;512;0.136\n")
    answer = owner.post(reverse("imports"), {"file": file, "about": "attention fp16 D=64 on NVIDIA L4"}, follow=True)
    text = answer.content.decode()
    assert "attention fp16 B=8 H=16 S=512 D=64" in text and "mine" in text and "82.2%" in text


@pytest.mark.parametrize(
    "sent, why",
    [
        ({}, "Choose a file, or paste its text."),
        ({"text": "hello"}, "No rows were recognised"),
        ({"text": "[1, 2]"}, "0 of 2 rows imported, 2 not."),
        ({"file": SimpleUploadedFile("a.json", b"\xff\xfe\x00\x01")}, "The file is not text."),
        ({"file": SimpleUploadedFile("a.json", b"")}, "empty"),
    ],
)
def test_what_cannot_be_imported_says_why(owner, sent, why):
    answer = owner.post(reverse("imports"), sent)
    assert answer.status_code == 422 and why in answer.content.decode()
    assert Import.objects.count() == 0


def test_a_file_with_too_many_rows_is_sent_to_the_command(owner, monkeypatch):
    monkeypatch.setattr(imports, "MOST_ROWS", 1)
    answer = owner.post(reverse("imports"), {"text": json.dumps([ROW, ROW])})
    assert answer.status_code == 422 and "manage.py import_results FILE" in answer.content.decode()


def test_what_the_samples_say_by_themselves(owner):
    load_sample_claims()
    said = {one.name: page(owner, one) for one in Import.objects.all()}
    session = said["Staff-Level CUDA Optimization Session - Final Report"]
    assert (
        "v3 (p50) is 133 to 837 times slower than sdpa on all 6 workloads and reaches 0.1% of the speed of light."
        in session
    )
    assert "the time grows 15.3x while the work grows 16x" in session and "that of sdpa grows 3.02x" in session
    assert "reported as 172, 523, 816 times slower than sdpa; its own times give 442, 564, 949" in session
    h100 = said["H100 Kernel Benchmark Status"]
    assert "12.27 ms would be 1075 TFLOP/s; H100 SXM cannot exceed 1071" in h100
    assert (
        "895.1 TFLOP/s is above everything measured on an H100 SXM" in h100 and "is incorrect by its own report" in h100
    )
    assert "45.23 TFLOP/s x 0.543 ms = 24.56 GFLOP" in said["TileLang CuTeDSL Performance Benchmarks"]
    assert "12.5 GB/s x 0.442 ms = 5.27 MiB" in said["Comprehensive Benchmarking Guide"]
    assert "latency-bound" in said["CUDA Kernel Benchmark Suite"]


def test_what_only_a_cache_gives_is_not_called_possible(owner):
    load_sample_claims()
    text = page(owner, Import.objects.get(name="CUDA Kernel Benchmark Suite"))
    assert "2 claims are possible only with inputs in the cache." in " ".join(text.split())
    assert "No figure in it is impossible" not in text


def test_every_link_of_a_finding_leads_to_its_claim(owner):
    load_sample_claims()
    for one in Import.objects.all():
        text = page(owner, one)
        links = {part.split('"')[0] for part in text.split("#claim-")[1:]}
        assert links and all(f'id="claim-{pk}"' in text for pk in links)


def test_the_arithmetic_of_a_claim_is_on_the_page_that_judges(owner):
    found = put([ROW | {"p50_ms": 0.9}]).imported
    text = page(owner, found)
    link = text.split('<a href="/judge/?')[1].split('"')[0].replace("&amp;", "&")
    assert "impossible" in page(owner, f"/judge/?{link}")


def test_many_claims_are_paged(owner):
    found = put([ROW | {"m": size} for size in range(1, PER_PAGE + 51)]).imported
    assert page(owner, found).count('id="claim-') == PER_PAGE
    assert page(owner, f"{found.get_absolute_url()}?page=2").count('id="claim-') == 50


def test_pages_take_few_queries(owner, django_assert_max_num_queries):
    found = put([ROW | {"m": size} for size in range(1, 300)]).imported
    for where in (reverse("imports"), found.get_absolute_url(), reverse("import_json", args=[found.pk])):
        with django_assert_max_num_queries(12):
            page(owner, where)


def test_files_say_that_they_are_claims(owner):
    found = put([ROW | {"tflops": 687.2, "kernel": "=1+1"}]).imported
    (row,) = csv.DictReader(io.StringIO(page(owner, reverse("import_csv", args=[found.pk]))))
    assert list(row) == list(COLUMNS)
    assert (row["origin"], row["kernel"], row["said_tflops"]) == ("claimed", "'=1+1", "687.2")
    data = json.loads(page(owner, reverse("import_json", args=[found.pk])))
    assert data["claims"][0]["origin"] == "claimed" and data["outcome"] == "1 of 1 row imported."


def test_names_with_html_run_no_script(owner):
    bad = ROW | {"kernel": f"k{SCRIPT}", "gpu": f"H200 {SCRIPT}", "backend": SCRIPT, "method": SCRIPT, "status": ""}
    found = put(
        [bad, ROW | {"status": SCRIPT}, ROW | {"p50_ms": SCRIPT, "kernel": "x"}], name=f"{SCRIPT}.json", about=SCRIPT
    )
    for where in (found.imported.get_absolute_url(), reverse("imports")):
        assert SCRIPT not in page(owner, where) and "&lt;script&gt;" in page(owner, where)
    answer = owner.post(reverse("imports"), {"text": json.dumps([ROW | {"status": SCRIPT}]), "about": SCRIPT})
    assert answer.status_code == 422 and SCRIPT not in answer.content.decode()
    for name in ("import_json", "import_csv"):
        file = owner.get(reverse(name, args=[found.imported.pk]))
        assert file.headers["Content-Type"].split(";")[0] in ("application/json", "text/csv")
        assert file.headers["X-Content-Type-Options"] == "nosniff"


def test_an_import_can_be_deleted_and_imported_again(owner):
    found = put([ROW]).imported
    owner.post(reverse("delete_import", args=[found.pk]))
    assert Claim.objects.count() == Import.objects.count() == 0
    assert put([ROW]).taken == 1


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_command(tmp_path, capsys):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in (ROW, ROW | {"m": 0})))
    with pytest.raises(SystemExit) as ended:
        call_command("import_results", str(path))
    said = capsys.readouterr().out
    assert ended.value.code == 1
    assert "JSONL: 1 of 2 rows imported, 1 not." in said and "line 2: m" in said and "Page: /import/" in said
    path.write_text(json.dumps(ROW))
    call_command("import_results", str(path))
    assert "Nothing new" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        call_command("import_results", str(tmp_path / "none"))
    assert ended.value.code == 2
