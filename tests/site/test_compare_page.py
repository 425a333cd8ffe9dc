"""The page of two runs, and how one comes there from a run's page."""

import csv
import io
import json
import re

import pytest
from cast import NO_SPEEDUP
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs.models import Kernel, Result


def page_of(client, before, after):
    answer = client.get(reverse("compare", args=[before.pk, after.pk]))
    assert answer.status_code == 200
    return answer.content.decode()


def rows_of(page, kernel):
    """The rows of a kernel's workloads."""
    return page.split(f"{kernel}</a></th></tr>", 1)[1].split("</tbody>", 1)[0].split("<tr")[1:]


def test_an_edited_kernel_is_held_against_what_it_was_and_its_source_is_shown(owner, measured):
    before, after = measured(), measured(edit={"triton-flash": 1.3})
    page = page_of(owner, before, after)
    assert '<strong class="faster">triton-flash is faster than before on 2 of 2 workloads</strong>' in page
    assert "of unchanged kernels" in page
    rows = rows_of(page, "triton-flash")
    assert len(rows) == 2
    for row in rows:
        assert "faster" in row and "<b>1.300x</b>" in row and "<svg" in row
        assert f"/runs/{after.pk}/results/" in row
    edited, control = page.split("Control: 7 unchanged kernels")
    assert "triton-flash</a></th>" in edited and "sdpa-flash</a></th>" in control
    assert "Source of triton-flash: 1 line added, 0 removed" in page
    assert '<span class="add">+# now 1.3' in page


def test_two_runs_of_the_same_sources_are_a_control_only(owner, measured):
    page = page_of(owner, measured(), measured())
    assert "No kernel source changed" in page
    assert page.count('<tr class="group">') == 8
    assert "Control: " not in page and '<details class="panel"' not in page


def test_a_kernel_that_became_wrong_stands_with_what_was_changed(owner, measured, exported):
    before, after = measured(), measured()
    after.measurements.first().results.filter(kernel__name="eager").update(status="incorrect", why="largest <error> 3")
    edited, _ = page_of(owner, before, after).split("<summary>Control: ")
    assert "1 result is incorrect now (eager)." in edited
    assert "largest &lt;error&gt; 3" in rows_of(edited, "eager")[0]


def test_an_edited_kernel_that_became_wrong_was_edited(owner, measured):
    before, after = measured(), measured(edit={"triton-flash": 1.0001})
    Result.objects.filter(measurement__run=after, kernel__name="triton-flash").update(status="incorrect", **NO_SPEEDUP)
    said = owner.get(f"/compare/{before.pk}...{after.pk}.md").content.decode()
    for text in (said, page_of(owner, before, after)):
        assert "The source of triton-flash changed, and no result of it can be compared" in text
        assert "No kernel source changed" not in text


def test_nothing_is_compared_across_versions_or_cards_and_the_page_says_why(owner, measured, make_gpu):
    before = measured()
    page = page_of(owner, before, measured(driver="600.1"))
    assert "These runs cannot be compared." in page
    assert "driver 580.159.04 before, 600.1 after" in page
    assert "<table" not in page
    beside = re.search(r'href="([^"]+)">See them side by side<', page)
    assert beside and owner.get(beside.group(1)).status_code == 200
    assert "The runs used two cards, GPU-1 and GPU-2" in page_of(
        owner, before, measured(on=make_gpu("GPU-2", host="gpu-2"))
    )


def test_a_run_and_itself(owner, measured):
    run = measured()
    page = page_of(owner, run, run)
    assert "These runs cannot be compared.</strong> It is the same run." in page and "<table" not in page


def test_a_demo_is_of_another_card(owner, demo, measured):
    assert "The runs used two cards, GPU-4587f291" in page_of(owner, demo, measured())
    assert "Compare</a>" not in owner.get(demo.get_absolute_url()).content.decode()


def test_from_a_run_to_the_comparison_with_the_one_before_it(owner, measured):
    first, second, third = measured(), measured(), measured()
    link = reverse("compare_with", args=[second.pk])
    assert f'href="{link}">Compare</a>' in owner.get(second.get_absolute_url()).content.decode()
    assert owner.get(link).headers["location"] == reverse("compare", args=[first.pk, second.pk])
    asked = owner.get(link, {"before": third.pk})
    assert asked.headers["location"] == reverse("compare", args=[third.pk, second.pk])
    page = page_of(owner, first, second)
    for other in (first, third):
        assert f'<option value="{other.pk}"' in page
    assert f'<option value="{first.pk}" selected>' in page
    assert reverse("compare", args=[second.pk, first.pk]) in page, "the other way round"
    of_the_first = owner.get(reverse("compare_with", args=[first.pk]))
    assert of_the_first.headers["location"] == reverse("compare", args=[first.pk, second.pk]), "never backwards"


def test_the_run_before_it_is_one_with_a_kernel_of_it(owner, measured):
    """Compare on the run of a submission went to another person's submission, with which nothing can be compared."""
    first, second, third = measured(), measured(), measured()
    eager = Kernel.objects.get(name="eager")
    others, earlier, mine = (
        Kernel.objects.create(operation=eager.operation, name=name, backend="pytorch")
        for name in ("other@0123456789", "mine@0123456789", "mine@9876543210")
    )
    for run, kernel in ((first, earlier), (second, others), (third, mine)):
        results = Result.objects.filter(measurement__run=run)
        results.exclude(kernel__name__in=("sdpa", "eager")).delete()
        results.filter(kernel=eager).update(kernel=kernel)
    link = reverse("compare_with", args=[third.pk])
    assert owner.get(link).headers["location"] == reverse("compare", args=[first.pk, third.pk])
    Result.objects.filter(measurement__run=first).delete()
    assert owner.get(link).headers["location"] == reverse("compare", args=[second.pk, third.pk]), "better than none"


def test_a_workload_that_is_gone_makes_no_kernel_a_changed_one(owner, measured):
    page = page_of(owner, measured(count=2), measured(count=1))
    assert "No kernel source changed" in page and ">Edited kernels<" not in page


def test_only_runs_that_can_be_compared_are_offered(owner, measured, make_gpu, make_run):
    run, like = measured(), measured()
    others = [measured(driver="600.1"), measured(on=make_gpu("GPU-2", host="gpu-2")), make_run()]
    page = page_of(owner, like, run)
    assert f'<option value="{like.pk}"' in page
    for other in [run, *others]:
        assert f'<option value="{other.pk}"' not in page


def test_where_there_is_nothing_to_compare_with_the_page_says_what_to_do(owner, measured, make_run, no_results):
    alone = measured()
    page = owner.get(reverse("compare_with", args=[alone.pk])).content.decode()
    assert "No other run to compare" in page and f"?again={alone.pk}" in page
    assert "It has not finished." in owner.get(reverse("compare_with", args=[make_run().pk])).content.decode()
    assert "It measured nothing." in owner.get(reverse("compare_with", args=[no_results.pk])).content.decode()
    assert "The run before has no results." in page_of(owner, no_results, alone)


@pytest.mark.parametrize("path", ["/compare/1...999/", "/compare/999...1.csv", "/runs/999/compare/"])
def test_a_run_that_is_not_there(owner, path):
    answer = owner.get(path)
    assert answer.status_code == 404
    assert "There is no run " in answer.content.decode()


def test_a_run_to_compare_with_that_is_not_there(owner, measured):
    run = measured()
    answer = owner.get(reverse("compare_with", args=[run.pk]), {"before": "99999999999999999999999"})
    assert answer.status_code == 404
    assert owner.get(reverse("compare_with", args=[run.pk]), {"before": "<x>"}).status_code == 200


def test_the_table_in_other_forms(owner, measured):
    before, after = measured(), measured(edit={"triton-flash": 0.8})
    numbers = [before.pk, after.pk]
    answer = owner.get(reverse("compare_csv", args=numbers))
    assert answer.headers["Content-Disposition"] == f'attachment; filename="runs-{before.pk}-to-{after.pk}.csv"'
    table = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [row["verdict"] for row in table if row["kernel"] == "triton-flash"] == ["SLOWER"] * 2
    data = json.loads(owner.get(reverse("compare_json", args=numbers)).content)
    assert (data["before"], data["after"], data["why_not"]) == (before.pk, after.pk, "")
    assert data["table"][-1]["change"] == pytest.approx(0.8)
    text = owner.get(reverse("compare_md", args=numbers)).content.decode()
    assert text.startswith(
        f"[Run {before.pk} to run {after.pk}](http://testserver/compare/{before.pk}...{after.pk}/), "
    )
    assert "triton-flash is slower than before on 2 of 2 workloads." in text


def test_strangers_are_sent_to_log_in(stranger, measured):
    run = measured()
    for address in (reverse("compare", args=[run.pk, run.pk]), reverse("compare_json", args=[run.pk, run.pk])):
        assert stranger.get(address).status_code == 302


def test_eight_by_eight_take_as_many_queries_as_two_by_eight(owner, measured, django_assert_max_num_queries):
    small, large = [measured(), measured()], [measured(8), measured(8)]
    with CaptureQueriesContext(connection) as seen:
        page_of(owner, *small)
    with django_assert_max_num_queries(len(seen)):
        page_of(owner, *large)
    assert len(seen) <= 10
    assert "samples_ns" not in " ".join(query["sql"] for query in seen)
