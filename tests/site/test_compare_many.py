"""Several runs side by side."""

from types import SimpleNamespace

import pytest
from django.urls import reverse

from runs.views.compare import _diffs


def page_of(client, *runs):
    answer = client.get(reverse("compare_many"), {"runs": ",".join(str(run.pk) for run in runs)})
    assert answer.status_code == 200
    return answer.content.decode()


def rows_of(page, kernel):
    return page.split(f">{kernel}</a></th></tr>", 1)[1].split("</tbody>", 1)[0].split("<tr")[1:]


def test_three_runs_of_one_card_have_words_against_the_first(owner, measured):
    runs = [measured(), measured(edit={"triton-flash": 1.3}), measured(edit={"triton-flash": 0.8})]
    page = page_of(owner, *runs)
    assert "<h1>3 runs side by side</h1>" in page
    rows = rows_of(page, "triton-flash")
    assert len(rows) == 2
    for row in rows:
        first, second, third = row.split("<td")[1:]
        assert "moved" not in first and "faster 1.30x" in second and "slower 0.80x" in third
        for run, cell in zip(runs, (first, second, third), strict=True):
            assert f"/runs/{run.pk}/results/" in cell
    assert "same 1.00x" in rows_of(page, "sdpa-cudnn")[0]


def test_cards_stand_side_by_side_without_a_word(owner, measured, make_gpu):
    runs = [measured(), measured(on=make_gpu("GPU-2", host="gpu-2"), device="NVIDIA L4"), measured(driver="600.1")]
    page = page_of(owner, *runs)
    assert "no word compares them" in page and "NVIDIA L4" in page and "driver 600.1" in page
    assert 'class="moved' not in page and "faster" not in page.split("<table")[1].split("</table>")[0]
    assert page.count(" has no word against run ") == 2
    assert rows_of(page, "triton-flash")[0].count("1.48x<small>±0.5%</small>") == 3


def test_two_runs_that_can_be_compared_have_a_page_of_their_own(owner, measured):
    first, second = measured(), measured()
    answer = owner.get(reverse("compare_many"), {"runs": f"{first.pk},{second.pk}"})
    assert answer.headers["location"] == reverse("compare", args=[first.pk, second.pk])
    link = f'href="{reverse("compare_many")}?runs={first.pk},{second.pk},"'
    assert link in owner.get(answer.headers["location"]).content.decode()


@pytest.mark.parametrize(
    "asked, said",
    [
        ("", "Give the numbers of the runs"),
        ("<script>", "Give the numbers of the runs"),
        ("998,999", "There is no run 998, 999."),
        (",".join(map(str, range(900, 920))), "At most 8 runs fit side by side"),
        ("9" * 40, "There is no run"),
    ],
)
def test_what_is_wrong_is_one_sentence(owner, asked, said):
    page = owner.get(reverse("compare_many"), {"runs": asked}).content.decode()
    assert page.count('role="alert"') == 1 and said in page and "<script>" not in page.split("<main")[1]


def test_many_runs_take_as_many_queries_as_three(owner, measured, django_assert_max_num_queries):
    runs = [measured(count=1) for _ in range(8)]
    with django_assert_max_num_queries(6):
        page_of(owner, *runs)


def test_a_stranger_sees_nothing(stranger, measured):
    assert stranger.get(reverse("compare_many"), {"runs": measured().pk}).status_code == 302


def test_kernels_of_one_name_in_two_operations_have_titles_of_their_own(db):
    def row(operation):
        hashes = {"sha256_before": f"{operation} 1", "sha256_after": f"{operation} 2"}
        return SimpleNamespace(workload=f"{operation} fp16 8 x 8", kernel="eager", same_source=False, **hashes)

    assert [one["kernel"] for one in _diffs([row("softmax"), row("gelu")])] == ["softmax/eager", "gelu/eager"]
    assert [one["kernel"] for one in _diffs([row("softmax")])] == ["eager"]
