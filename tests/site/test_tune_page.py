"""Searches on the site: the form, what agents report, the page, its charts and files."""

import csv
import io

import pytest
from cast import spec
from django.db import connection
from django.test.utils import CaptureQueriesContext
from searching import CONFIG, report, searched, trials

from kernels.contract.events import Tried
from kernels.contract.search import read_table, winners_curse
from kernels.tune_plan import TunePlan
from kernels.workload import RunSpec
from runs.agent.submitted import read_spec
from runs.models import Run, Trial
from runs.queries.queue import estimate_new
from runs.queries.searches import search_of

pytestmark = pytest.mark.django_db
BUDGET = 12


@pytest.fixture
def sent(gpu, configs):
    """What a browser sends."""
    return {
        "device": str(gpu.pk), "kernel": "layer_norm/triton-layer-norm", "config": "layer-norm", "sampler": "evolution",
        "trials": "12", "minutes": "10", "finalists": "3", "processes": "5", "seed": "7",
    }  # fmt: skip


# --- the form ---------------------------------------------------------------------------------------------------------


def test_the_form_offers_kernels_that_declare_settings_and_configs_of_their_operations(owner, gpu, configs):
    page = owner.get("/runs/tune/").content.decode()
    assert "layer_norm/triton-layer-norm · 35" in page and "gemm/triton-gemm" in page
    assert "attention/sdpa" not in page and "layer-norm · LayerNorm" in page
    assert "attention/triton-flash · 576" in page and "smoke-window" in page
    assert 'href="/runs/tune/"' in owner.get("/runs/new/").content.decode()


def test_a_tunable_kernel_leads_to_the_form(owner, viewer, gpu, configs):
    page = owner.get("/kernels/layer_norm/triton-layer-norm/").content.decode()
    assert 'href="/runs/tune/?kernel=layer_norm/triton-layer-norm"' in page
    assert "/runs/tune/" not in owner.get("/kernels/layer_norm/eager/").content.decode()
    assert "/runs/tune/" not in viewer.get("/kernels/layer_norm/triton-layer-norm/").content.decode()


def test_a_search_is_queued_as_it_was_asked_for(owner, sent, gpu):
    answer = owner.post("/runs/tune/", sent)
    run = Run.objects.get()
    assert (answer.status_code, answer.url) == (302, f"/runs/{run.pk}/")
    assert run.plan == TunePlan(sampler="evolution", trials=12, minutes=10, seed=7)
    assert (run.gpu, run.user, run.total, run.title) == (gpu, owner.user, 12, "Tune triton-layer-norm on layer-norm")
    assert (run.spec.baseline, run.spec.kernels) == ("triton-layer-norm", ["triton-layer-norm"])
    estimate_new()
    run.refresh_from_db()
    assert run.expected_s == 600
    page = owner.get(answer.url).content.decode()
    assert "Queued" in page and "0 of 12 trials so far." in page


@pytest.mark.parametrize(
    "change, said",
    [
        ({"config": "gemm"}, "This config is for gemm; choose one for layer_norm."),
        ({"trials": "0"}, "greater than or equal to 1"),
        ({"kernel": "layer_norm/eager"}, "is not one of the available choices"),
        ({"minutes": ""}, "This field is required"),
        ({"config": "comprehensive"}, "is not one of the available choices"),
    ],
)
def test_what_cannot_be_is_said_at_its_field(owner, sent, change, said):
    answer = owner.post("/runs/tune/", sent | change)
    assert (answer.status_code, Run.objects.count()) == (422, 0)
    assert said in answer.content.decode()


def test_a_device_that_cannot_run_the_kernel_is_refused(owner, sent, cpu):
    answer = owner.post("/runs/tune/", sent | {"device": str(cpu.pk)})
    assert "AMD EPYC cannot run triton-layer-norm: needs a CUDA device." in answer.content.decode()


def test_a_viewer_starts_no_search_and_without_devices_the_form_says_so(viewer, owner):
    assert viewer.get("/runs/tune/").status_code == 403
    assert "No device has reported yet." in owner.get("/runs/tune/").content.decode()


def test_without_a_kernel_that_can_run_it_names_those_that_declare_settings_and_says_how(owner, cpu):
    page = owner.get("/runs/tune/").content.decode()
    assert "No device has a kernel that declares settings and can run there." in page
    named = page.split(f"AMD EPYC · {cpu.place}: kernels that declare settings, and why they cannot run there")[
        1
    ].split("</ul>")[0]
    assert 'href="/kernels/layer_norm/triton-layer-norm/"' in named and "needs a CUDA device" in named
    assert "attention/sdpa<" not in named
    assert "space={" in page and "docs/kernels.md" in page


# --- what agents report -----------------------------------------------------------------------------------------------


def test_trials_are_stored_once_and_counted(gpu):
    run = searched(gpu, count=6, ends="")
    assert (run.state, run.done, run.total, run.trials.count()) == ("running", 6, 6, 6)
    report(run, [Tried(trial=trials(6)[5])], first=8)
    assert Trial.objects.count() == 6
    assert run.measurements.count() == 0, "a trial is no result: it counts nowhere"


def test_a_resumed_search_is_sent_with_its_trials_and_its_fingerprint(gpu):
    run = searched(gpu, count=6, ends="")
    message = run.run_spec().as_message()
    assert (len(message["tried"]), message["fingerprint"], message["tune"]["trials"]) == (6, "f", 6)
    assert read_spec(message).tune == run.plan
    plain = RunSpec.of(spec("eager"), "GPU-1").as_message()
    assert not {"tune", "tried"} & plain.keys(), "an agent of an earlier version would refuse them"


def test_the_search_of_a_run_is_what_the_command_would_have_written(gpu):
    search = search_of(searched(gpu))
    assert (search.kernel, search.state, len(search.trials), len(search.finalists)) == (
        "triton-layer-norm",
        "done",
        24,
        3,
    )
    assert search.best == search.winner.settings and search.environment["triton"] == "3.6.0"
    assert search.space["rows"] == (1, 2, 4, 8, 16, 32, 64)
    assert 0.97 < winners_curse(search.pairs).ratio < 0.99


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_says_the_best_settings_first_and_compares_promise_and_confirmation(owner, gpu):
    run = searched(gpu, owner.user)
    with CaptureQueriesContext(connection) as seen:
        page = owner.get(run.get_absolute_url()).content.decode()
    assert len(seen) <= BUDGET
    winner = search_of(run).winner
    best = f"rows={winner.settings['rows']}+warps={winner.settings['warps']}"
    assert f"{best}: speedup over the default settings at least 1." in page and "confirmed in 5 processes." in page
    assert (
        "screening promised too much" in page
        and "confirmed / promised is 0.98" in page
        and "winner&#x27;s curse" in page
    )
    assert "triton-layer-norm.tuned.json" in page
    assert '<details class="panel" id="pruned"><summary>6 pruned trials, by reason' in page
    assert "256 elements a thread; this kernel does 2 to 128" in page
    assert "Trials and the best so far" in page and "Promised against confirmed" in page
    assert "--config layer-norm --sampler tpe --seed 0 --trials 24" in page
    assert f'href="/runs/tune/?again={run.pk}"' in page and "/compare/" not in page.split("<main")[1]


def test_without_a_winner_the_own_choice_stays(owner, gpu):
    page = owner.get(searched(gpu, passes=False).get_absolute_url()).content.decode()
    assert "None of 3 finalists passed every check when measured again. The default settings stay." in page
    assert "Best settings" not in page


def test_a_search_in_progress_shows_its_trials_and_one_that_was_cancelled_says_that_nothing_is_confirmed(owner, gpu):
    run = searched(gpu, count=5, ends="", trials=9)
    page = owner.get(run.get_absolute_url()).content.decode()
    assert "5 of 9 trials so far." in page and "5 of 9 trials measured" in page
    live = owner.get(f"/runs/{run.pk}/live/?seen=").content.decode()
    assert 'hx-swap-oob="true"' in live and "5 of 9 trials so far." in live
    same = owner.get(f"/runs/{run.pk}/live/?seen=running-5-0").content.decode()
    assert "trials so far." not in same, "what the page has already is not sent again"
    Run.objects.filter(pk=run.pk).update(state="cancelled")
    assert (
        "Ended early, after 5 of 9 trials: nothing is confirmed." in owner.get(run.get_absolute_url()).content.decode()
    )


def test_a_search_of_which_everything_was_pruned_has_a_page_and_no_chart(owner, gpu):
    run = Run.objects.submit(CONFIG, gpu=gpu, tune=TunePlan(trials=1), wake=False)
    Run.objects.filter(pk=run.pk).update(attempt=1, sent_at=run.created_at, state="done")
    report(run, [Tried(trial=trials(4)[3].model_copy(update={"number": 1}))])
    page = owner.get(run.get_absolute_url()).content.decode()
    assert (
        "No tried setting was correct on all 2 workloads (1 tried). The default settings stay." in page
        and "<figure" not in page
    )
    assert owner.get(f"/runs/{run.pk}/charts/search.json").status_code == 404


@pytest.mark.parametrize("name", ["search", "promised", "search-narrow", "promised-narrow"])
def test_each_chart_is_drawn_in_both_themes_and_has_the_numbers_of_the_table(owner, gpu, name):
    run = searched(gpu)
    for palette in ("light", "dark"):
        chart = owner.get(f"/runs/{run.pk}/charts/{name}.json?theme={palette}")
        assert chart.status_code == 200
        values = [row for rows in chart.json()["datasets"].values() for row in rows]
        search = search_of(run)
        wanted = {one.score for one in search.trials if one.score} if "search" in name else set()
        wanted |= {pair.confirmed.ratio for pair in search.pairs} if "promised" in name else set()
        assert wanted <= {row.get("ratio") for row in values}
    assert b"<svg" in owner.get(f"/runs/{run.pk}/charts/{name}.svg").content


def test_its_files_are_the_table_of_the_kernel_and_a_row_for_each_trial_and_workload(owner, gpu):
    run = searched(gpu)
    table = read_table(owner.get(f"/runs/{run.pk}.json").content)
    assert (table.kernel, table.searches[0].best) == ("triton-layer-norm", search_of(run).best)
    rows = list(csv.DictReader(io.StringIO(owner.get(f"/runs/{run.pk}.csv").content.decode())))
    assert len(rows) == 48 and sum(bool(row["confirmed"]) for row in rows) == 6
    assert {row["why"] for row in rows if row["status"] == "unsupported"} != {""}
    assert len(owner.get(f"/runs/{run.pk}.jsonl").content.splitlines()) == 48
    assert "promised" in owner.get(f"/runs/{run.pk}.md").content.decode()


def test_other_pages_take_a_search_for_what_it_is(owner, gpu):
    run = searched(gpu, owner.user)
    for address in (
        "/",
        "/runs/",
        "/runs.json",
        "/results/",
        f"/gpus/{gpu.pk}/",
        "/leaderboard/",
        f"/runs/new/?again={run.pk}",
    ):
        assert owner.get(address).status_code == 200, address
    assert owner.get(f"/runs/tune/?again={run.pk}").context["form"]["kernel"].value() == "layer_norm/triton-layer-norm"
