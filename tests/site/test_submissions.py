"""Submissions on the site: the form, what is stored, what is refused, and the page of one with its ancestors."""

import html
import json
import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse
from django.utils import timezone
from form import again

from kernels.submission import Unreadable
from runs.models import Gpu, Kernel, Result, Run, Submission
from runs.submission_form import examples
from runs.submitting import NotSubmitted, config_for, device_for, start_run

SOURCE = """from kernels.catalog import kernel

@kernel("swish", backend="pytorch")
def mine(x):
    "Product and logistic function."
    return x * x.sigmoid()
"""
FORM = reverse("submit")


@pytest.fixture
def ready(cpu, configs):
    """A device that takes submitted kernels."""
    Gpu.objects.filter(pk=cpu.pk).update(no_submissions="")
    cpu.refresh_from_db()
    return cpu


def sent(source=SOURCE, name="mine.py", **more):
    return {"filename": name, "source": source, "device": "", "config": "", "effort": "quick", "message": ""} | more


def stored(client, **more):
    """The submission that a form makes."""
    answer = client.post(FORM, sent(**more))
    assert answer.status_code == 302, answer.context["form"].errors
    return Submission.objects.latest("pk")


# --- the form ---------------------------------------------------------------------------------------------------------


def test_a_pasted_kernel_is_stored_with_who_and_what(owner, ready):
    one = stored(owner, message="  twice as fast ", source=SOURCE.replace("\n", "\r\n"))
    assert (one.operation, one.name, one.backend, one.user, one.message) == (
        "swish", "mine", "pytorch", owner.user, "twice as fast",
    )  # fmt: skip
    assert one.files == {"mine.py": SOURCE}
    assert one.kernel == f"mine@{one.sha256[:10]}"
    assert one.get_absolute_url() == f"/submissions/{one.version}/"


def test_with_a_device_it_is_measured_isolated_beside_the_baseline(owner, ready):
    answer = owner.post(FORM, sent(device=str(ready.pk)))
    run, one = Run.objects.get(), Submission.objects.get()
    assert answer.url == run.get_absolute_url()
    assert run.spec.kernels == [run.spec.baseline, one.kernel]
    assert run.spec.protocol.isolated and run.spec.operation == "swish" and run.spec.name == "smoke-swish"
    assert run.user == owner.user and run.gpu == ready
    assert run.run_spec().submissions == [one.spec]


def test_sizes_of_ones_own_stand_for_those_of_the_config(owner, ready):
    sizes = "rows=1024,4096  cols=8192 dtype=float16,float32"
    owner.post(FORM, sent(device=str(ready.pk), sweep=sizes))
    run = Run.objects.get()
    assert [w.label for w in run.spec.workloads] == [
        f"swish {dtype} {rows} x 8192" for rows in (1024, 4096) for dtype in ("fp16", "fp32")
    ]
    assert run.title.endswith(" on smoke-swish, rows=1024,4096, cols=8192, dtype=float16,float32")


@pytest.mark.parametrize(
    ("start", "said"), [("gemm/pytorch", "m="), ("attention/pytorch", "batch="), ("swish/pytorch", "rows=")]
)
def test_the_example_of_sizes_is_of_the_operation(owner, ready, start, said):
    """It named rows and cols for every operation."""
    page = owner.get(f"{FORM}?start={start}").content.decode()
    shown = re.search(r"<code data-example>(.*?)</code>", page)[1]
    assert shown.startswith(said) and " dtype=" in shown
    assert json.loads(html.unescape(re.search(r'data-examples="(.*?)"', page)[1]))[start.split("/")[0]] == shown


def test_each_example_of_sizes_can_be_measured(owner, ready):
    for operation, said in examples().items():
        one = Submission(operation=operation, name="mine", sha256="0" * 64)
        assert len(config_for(one, sweep=said.split()).workloads) >= 2, operation


def test_the_page_of_a_submission_has_an_example_of_its_operation(owner, ready):
    page = owner.get(stored(owner).get_absolute_url()).content.decode()
    assert "<code data-example>rows=" in page


def test_dropped_files_join_the_typed_ones_and_replace_those_of_the_same_name(owner, ready):
    files = [
        SimpleUploadedFile("mine.py", SOURCE.replace("Product", "Sum").encode()),
        SimpleUploadedFile("helper.py", b"HALF = 0.5\n"),
    ]
    owner.post(FORM, sent() | {"dropped": files})
    assert Submission.objects.get().files == {"mine.py": SOURCE.replace("Product", "Sum"), "helper.py": "HALF = 0.5\n"}


def test_only_dropped_files_are_enough(owner, ready):
    owner.post(FORM, sent(source="", name="") | {"dropped": [SimpleUploadedFile("mine.py", SOURCE.encode())]})
    assert Submission.objects.get().files == {"mine.py": SOURCE}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"source": "", "name": ""}, "There is no file."),
        ({"source": "x = 1"}, "No file declares a kernel"),
        ({"source": "def apply(x):\n    return x\n", "name": "a.py"}, "name the function or its file after the one"),
        (
            {"source": "class ModelNew: pass"},
            "mine.py is a kernel of KernelBench: there is no file with Model and get_inputs",
        ),
        ({"source": "def ("}, "mine.py cannot be read"),
        ({"source": SOURCE + "#" * 1_000_000}, "the limit is 1,000,000"),
        ({"name": "../mine.py"}, "is not valid"),
        ({"dropped": [SimpleUploadedFile("a.py", b"\xff\xfe\x00")]}, "a.py is not text in UTF-8"),
        ({"sweep": "rows"}, "A sweep is SIZE=A,B, such as seq_len=512,1024, not "),
        ({"sweep": "heads=8"}, "heads"),
        ({"sweep": "rows=0"}, "rows"),
        (
            {"sweep": " ".join(f"{name}={','.join(map(str, range(1, 16)))}" for name in ("rows", "cols"))},
            "These sizes make 225 workloads; choose fewer.",
        ),
        ({"config": "smoke"}, "The config smoke measures attention; the kernel mine computes swish."),
    ],
)
def test_what_cannot_be_is_said_and_nothing_is_stored(owner, ready, more, why):
    answer = owner.post(FORM, sent(**{"device": str(ready.pk)} | more))
    assert answer.status_code == 422
    assert why in answer.content.decode()
    assert not Submission.objects.exists() and not Run.objects.exists()
    if "source" in more and "def" in more["source"]:
        assert more["source"].split("\n")[0] in answer.content.decode()  # what was typed stays


def test_the_form_says_that_kernels_run_isolated_and_starts_from_one_that_works(owner, ready):
    page = owner.get(FORM).content.decode()
    assert "always runs isolated" in page
    assert "?start=gelu/cuda" in page
    assert "Drop files here, at most 1 MB together. A file named like the one above replaces it." in page
    assert (
        '"gelu", name="my-kernel", backend="triton"'
        in owner.get(FORM + "?start=gelu/triton").context["form"].typed[0].text
    )
    assert owner.get(FORM + "?start=no/such").status_code == 200


def test_the_example_can_run_on_a_device_that_is_here(owner, ready, gpu):
    assert owner.get(FORM).context["chosen"] == "attention/triton"
    Gpu.objects.filter(kind="cuda").update(kind="cpu")
    assert owner.get(FORM).context["chosen"] == "attention/pytorch"


def test_a_device_that_cannot_isolate_is_not_offered_and_says_what_is_missing(owner, ready, gpu):
    page = owner.get(FORM)
    assert [pk for pk, _ in page.context["form"].fields["device"].choices] == [str(ready.pk), ""]
    assert (
        "Not on NVIDIA H200 (gpu-1 / 0): its agent has not said that it takes submitted kernels"
        in page.content.decode()
    )
    Gpu.objects.filter(pk=gpu.pk).update(no_submissions="this host does not provide: no network")
    assert "this host does not provide: no network" in owner.get(FORM).content.decode()
    assert (
        "no submitted kernels: this host does not provide" in owner.get(reverse("gpu", args=[gpu.pk])).content.decode()
    )
    assert owner.post(FORM, sent(device=str(gpu.pk))).status_code == 422
    with pytest.raises(NotSubmitted, match="does not take submitted kernels: this host"):
        one, _ = Submission.objects.store({"mine.py": SOURCE})
        start_run(one, Gpu.objects.get(pk=gpu.pk), config_for(one))


def test_a_stranger_sees_nothing(stranger, owner, ready):
    one = stored(owner)
    for address in (FORM, reverse("submissions"), one.get_absolute_url()):
        assert stranger.get(address).status_code == 302
    assert stranger.post(FORM, sent()).status_code == 302
    assert Submission.objects.count() == 1


def test_a_bare_function_gets_its_declaration(owner, ready):
    one = stored(owner, source="import torch\n\n\ndef softmax(x):\n    return torch.softmax(x, -1)\n", name="fast.py")
    assert (one.operation, one.name, one.backend) == ("softmax", "softmax", "pytorch")
    assert '@kernel("softmax", backend="pytorch")\ndef softmax(x):' in one.files["fast.py"]


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_the_same_files_twice_are_one_submission(owner, member, ready):
    first = stored(owner, message="mine")
    again_ = stored(member, message="theirs")
    assert first.pk == again_.pk and Submission.objects.count() == 1
    assert (again_.user, again_.message) == (owner.user, "mine")


def test_files_that_are_stored_already_are_said_to_be_and_keep_their_message(owner, ready):
    first = stored(owner, message="the first")
    page = owner.post(FORM, sent(message="the second"), follow=True).content.decode()
    assert f"This kernel is stored already, as {first.kernel}. Its message and its parent stay as they are." in page
    first.refresh_from_db()
    assert first.message == "the first"


def test_a_submission_never_changes(owner, ready):
    one = stored(owner)
    one.message = "other"
    with pytest.raises(TypeError, match="never changes"):
        one.save()


def test_a_run_whose_submission_is_not_stored_is_not_sent(owner, ready):
    one = stored(owner)
    run = start_run(one, ready, config_for(one))
    Submission.objects.all().delete()
    with pytest.raises(Unreadable, match="is not stored here"):
        run.run_spec()


def test_devices_are_found_by_a_part_of_their_name(gpu, ready):
    assert device_for("h200") == gpu and device_for("EPYC") == ready and device_for("cpu") == ready
    assert device_for(gpu.uuid) == gpu
    with pytest.raises(NotSubmitted, match="there are: AMD EPYC, NVIDIA H200"):
        device_for("mi300")


# --- its page ---------------------------------------------------------------------------------------------------------


def test_the_page_shows_its_source_and_that_nothing_was_measured(owner, ready):
    page = owner.get(stored(owner, message="<b>fast</b>").get_absolute_url()).content.decode()
    assert "Not measured yet" in page and "return x * x.sigmoid()" in page
    assert "&lt;b&gt;fast&lt;/b&gt;" in page and "<b>fast</b>" not in page
    assert owner.get("/submissions/0123456789/").status_code == 404
    assert owner.get("/submissions/0/").status_code == 404


def test_a_fork_starts_from_the_files_and_shows_what_it_changed(owner, ready):
    parent = stored(owner)
    form = owner.get(FORM, {"parent": parent.version})
    assert form.context["form"].typed[0].text == SOURCE
    child = stored(owner, parent=parent.version, source=SOURCE.replace("x * x.sigmoid()", "x.sigmoid() * x"))
    assert child.parent == parent
    page = owner.get(child.get_absolute_url())
    (changed,) = page.context["diffs"]
    assert (changed["name"], changed["diff"]["added"], changed["diff"]["removed"]) == ("mine.py", 1, 1)
    assert child.kernel in owner.get(parent.get_absolute_url()).content.decode()
    assert [row["one"] for row in page.context["line"]] == [child, parent]


def test_a_child_is_measured_beside_its_parent(owner, ready):
    parent = stored(owner)
    child = stored(owner, parent=parent.version, source=SOURCE + "# changed\n")
    owner.post(reverse("measure_submission", args=[child.version]), {"device": ready.pk, "beside": "on"})
    run = Run.objects.latest("pk")
    assert run.spec.kernels[1:] == [parent.kernel, child.kernel]
    assert run.run_spec().submissions == [parent.spec, child.spec]
    owner.post(reverse("measure_submission", args=[child.version]), {"device": ready.pk})
    assert Run.objects.latest("pk").spec.kernels[1:] == [child.kernel]


def test_its_page_leads_to_the_run_that_will_measure_it(owner, ready):
    """It said that no run had measured it, and nothing of the one that was queued."""
    one, other = stored(owner), stored(owner, source=SOURCE + "# another\n")
    owner.post(reverse("measure_submission", args=[one.version]), {"device": ready.pk})
    run = Run.objects.latest("pk")
    said = f'<a href="{run.get_absolute_url()}">Run {run.pk}</a> is queued on {ready.name}.'
    assert said in owner.get(one.get_absolute_url()).content.decode()
    assert said not in owner.get(other.get_absolute_url()).content.decode()
    Run.objects.filter(pk=run.pk).update(state=Run.State.FAILED)
    assert said not in owner.get(one.get_absolute_url()).content.decode()


def test_run_again_keeps_the_submission(owner, ready):
    one = stored(owner)
    run = start_run(one, ready, config_for(one), user=owner.user)
    repeated = again(owner, run)
    assert one.kernel in repeated["kernels"] and repeated["protocol"] == "isolated"
    assert "Press Run again: the agent gets the kernel" in owner.get(run.get_absolute_url()).content.decode()


def test_the_list_names_each(owner, ready):
    assert "None yet" in owner.get(reverse("submissions")).content.decode()
    one = stored(owner)
    assert one.kernel in owner.get(reverse("submissions")).content.decode()


def test_the_list_has_the_newest_result_of_each(owner, ready, demo, django_assert_max_num_queries):
    one, other = stored(owner), stored(owner, source=SOURCE + "# not measured\n")
    Kernel.objects.filter(name="triton-flash").update(operation="swish", name=one.kernel)
    newest = Result.objects.filter(kernel__name=one.kernel).latest("pk")
    with django_assert_max_num_queries(20):
        answer = owner.get(reverse("submissions"))
    assert [last and last.point.pk for _, last in answer.context["rows"]] == [None, newest.pk]
    page = answer.content.decode()
    assert re.search(rf'href="/runs/{demo.pk}/results/{newest.pk}/"><span class="tag', page)
    assert f"{newest.speedup:.2f}x" in page or f"{newest.speedup:.3f}x" in page
    lines = {line["kernel"]: line["newest"] for line in owner.get("/api/submissions").json()["submissions"]}
    assert lines[other.kernel] is None
    assert (lines[one.kernel]["run"], lines[one.kernel]["speedup"]) == (demo.pk, newest.speedup)
    Run.objects.filter(pk=demo.pk).update(withdrawn_at=timezone.now())
    assert owner.get("/api/submissions").json()["submissions"][1]["newest"] is None


def test_a_kernel_of_that_name_in_another_operation_gives_no_result(owner, ready, demo):
    one = stored(owner)
    Kernel.objects.filter(operation="attention", name="triton-flash").update(name=one.kernel)
    assert Result.objects.filter(kernel__name=one.kernel).exists()
    assert [last for _, last in owner.get(reverse("submissions")).context["rows"]] == [None]
    assert owner.get("/api/submissions").json()["submissions"][0]["newest"] is None


@pytest.mark.parametrize(
    ("query", "found"),
    [("q=twice", 1), ("q=MINE", 2), ("q=olga+mine", 2), ("q=mats", 0), ("q=mine@{v}", 1), ("q={v}", 1), ("q=%00", 2),
     ("operation=swish", 2), ("operation=gelu", 0), ("operation=swish&q=nosuch", 0), ("page=99&q=mine", 2)],
)  # fmt: skip
def test_the_list_is_searched(owner, ready, query, found):
    one, _ = stored(owner, message="Twice as fast"), stored(owner, source=SOURCE + "# other\n")
    answer = owner.get(f"{reverse('submissions')}?{query.replace('{v}', one.version)}")
    assert len(answer.context["rows"]) == found
    assert ("No submission matches" in answer.content.decode()) == (found == 0)


def test_a_page_of_a_search_leads_to_the_next_of_the_same(owner, ready, monkeypatch):
    monkeypatch.setattr("runs.views.submissions.PER_PAGE", 1)
    stored(owner), stored(owner, source=SOURCE + "# other\n")
    assert 'href="?q=mine&amp;page=2" rel="next"' in owner.get(reverse("submissions") + "?q=mine").content.decode()


# --- from a git repository --------------------------------------------------------------------------------------------

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GIT = {
    "git_url": "https://git.example.org/team/kernels.git", "git_commit": COMMIT, "git_folder": "swish/mine",
    "git_kernel": "mine", "git_operation": "swish",
}  # fmt: skip


def test_a_kernel_in_a_repository_is_stored_by_its_commit_and_measured(owner, ready):
    answer = owner.post(FORM, sent(device=str(ready.pk), message="as merged", **GIT))
    run, one = Run.objects.get(), Submission.objects.get()
    assert answer.url == run.get_absolute_url()
    assert (one.operation, one.name, one.files, one.message) == ("swish", "mine", {}, "as merged")
    assert one.git == {"url": GIT["git_url"], "commit": COMMIT, "folder": "swish/mine", "kernel": "mine"}
    run.gpu = ready
    (sent_with,) = run.run_spec().submissions
    assert sent_with.git.commit == COMMIT and f"mine@{sent_with.version}" == one.kernel
    assert one.kernel in run.spec.kernels
    owner.post(FORM, sent(**GIT))
    assert Submission.objects.count() == 1, "the same commit is one submission"


def test_the_page_of_such_a_submission_says_where_it_lies_and_can_be_forked_by_a_file(owner, ready):
    one = stored(owner, **GIT)
    page = owner.get(one.get_absolute_url()).content.decode()
    assert COMMIT[:12] in page and "https://git.example.org/team/kernels.git" in page and "swish/mine" in page
    assert "Its files are in the repository." in page
    child = stored(owner, parent=one.version)
    assert child.parent == one and owner.get(child.get_absolute_url()).status_code == 200
    form = owner.get(f"{FORM}?parent={one.version}").context["form"]
    assert {name: form[name].value() for name in GIT} == GIT
    assert [(file.name, file.text) for file in form.typed] == [("", "")], "no example of another operation"
    refused = owner.post(FORM, sent(SOURCE.replace('"swish"', '"gelu"'), parent=one.version))
    assert refused.status_code == 422 and "so no kernel of gelu is a change of it" in refused.content.decode()
    assert Submission.objects.count() == 2


def test_a_viewer_is_not_offered_a_fork(owner, viewer, ready):
    address = stored(owner).get_absolute_url()
    assert ">Fork</a>" in owner.get(address).content.decode()
    assert ">Fork</a>" not in viewer.get(address).content.decode()


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("git_url", "git@host:team/x.git", "The address must begin with https://, ssh://, file://, http://."),
        ("git_url", "https://me:secret@host/x", "The address must not contain a password: everybody here sees it."),
        ("git_commit", "main", "The commit must have all 40 hexadecimal digits"),
        ("git_folder", "../x", "The folder must be a path such as kernels/gemm"),
        ("git_kernel", "", "The kernel&#x27;s name must be of small letters, digits and -"),
        ("git_operation", "poetry", "Select a valid choice."),
    ],
)
def test_a_wrong_field_of_a_repository_is_marked(owner, ready, field, value, why):
    answer = owner.post(FORM, sent(**GIT | {field: value}))
    assert answer.status_code == 422 and why in answer.content.decode()
    assert list(answer.context["form"].errors) == [field] and not Submission.objects.exists()


def test_a_config_of_another_operation_is_refused_before_it_is_stored(owner, ready):
    answer = owner.post(FORM, sent(device=str(ready.pk), config="smoke", **GIT))
    assert answer.status_code == 422 and not Submission.objects.exists()
