"""Whose turn it is, when a run is expected to start, and devices that are paused. No processes."""

import random
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.urls import reverse
from django.utils import timezone

from kernels.workload import Config
from runs.models import Gpu, Run
from runs.pipeline import dispatcher
from runs.pipeline.dispatcher import dispatch
from runs.queries import estimates, queue
from runs.queries.queue import UNKNOWN_S, forecast, forecasts, next_of, queue_of, waiting

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(30)]
SIZES = {"batch": 1, "heads": 2, "head_dim": 64}


@pytest.fixture(autouse=True)
def nothing_is_sent(monkeypatch):
    monkeypatch.setattr(dispatcher, "send", lambda *arguments, **options: True)


@pytest.fixture
def people():
    return [get_user_model().objects.create_user(name) for name in ("ada", "bob")]


def device(uuid="GPU-1", **more):
    own = {"kind": "cuda", "name": "NVIDIA H200", "host": "gpu-3", "seen_at": timezone.now()}
    return Gpu.objects.create(uuid=uuid, **own | more)


def submit(gpu=None, expected_s=None, ago_s=0.0, workloads=1, **options):
    sizes = [{**SIZES, "seq_len": 16 * (1 + n)} for n in range(workloads)]
    config = Config(name="test", operation="attention", kernels=["sdpa"], workloads=sizes)
    run = Run.objects.submit(config, gpu=gpu, **options)
    Run.objects.filter(pk=run.pk).update(expected_s=expected_s, created_at=timezone.now() - timedelta(seconds=ago_s))
    run.refresh_from_db()
    return run


def begin(run, gpu, since_s):
    then = timezone.now() - timedelta(seconds=since_s)
    Run.objects.filter(pk=run.pk).update(state="running", gpu=gpu, sent_at=then, started_at=then)


def starts_in(run):
    found = forecast(run)
    return found.place, found.starts_at and (found.starts_at - timezone.now()).total_seconds()


# --- whose turn it is -------------------------------------------------------------------------------------------------


def test_runs_of_about_the_same_length_keep_their_order(gpu, people):
    """Eight equal runs were measured in a random order: their estimates differed by what earlier ones had taken."""
    runs = [submit(gpu, expected_s=8.0 - 0.1 * number, user=people[0]) for number in range(4)]
    assert next_of(waiting(), gpu, {}).pk == runs[0].pk


def test_of_one_persons_runs_a_short_one_goes_first(people):
    gpu = device()
    submit(gpu, expected_s=3600, user=people[0])
    short = submit(gpu, expected_s=20, user=people[0])
    assert dispatch() == [short]


def test_a_run_whose_estimate_fails_holds_up_no_other(people, monkeypatch, caplog):
    gpu, other = device(), device("GPU-2")
    strange, plain = submit(gpu, workloads=3), submit(other)

    def fails(spec, gpu):
        if len(spec.workloads) == 3:
            raise KeyError("a dtype that nobody thought of")
        return estimates.estimate(spec, gpu)

    monkeypatch.setattr(queue, "estimate", fails)
    assert {run.pk for run in dispatch()} == {strange.pk, plain.pk}
    strange.refresh_from_db()
    assert strange.expected_s == UNKNOWN_S and f"no estimate of run {strange.pk}" in caplog.text


def test_a_long_run_that_has_waited_longer_than_the_difference_goes_first(people):
    gpu = device()
    long = submit(gpu, expected_s=3600, ago_s=3600, user=people[0])
    submit(gpu, expected_s=20, user=people[0])
    assert dispatch() == [long]


def test_a_short_run_of_who_used_more_waits(people):
    ada, bob = people
    gpu, other = device(), device("GPU-2", name="NVIDIA A100")
    begin(submit(other, user=ada), other, since_s=300)
    submit(gpu, expected_s=5, user=ada)
    of_bob = submit(gpu, expected_s=3600, user=bob)
    assert dispatch() == [of_bob], "device time of a run in progress counts"


def test_the_estimate_of_a_run_is_stored_when_it_is_first_looked_at():
    gpu = device()
    small, large = submit(gpu), submit(gpu, workloads=20)
    dispatch()
    small.refresh_from_db()
    large.refresh_from_db()
    assert 0 < small.expected_s < large.expected_s


def test_a_run_whose_config_this_version_cannot_read_still_gets_its_turn():
    gpu = device()
    run = submit(gpu)
    Run.objects.filter(pk=run.pk).update(config={"name": "old", "operation": "attention"}, config_name="old")
    dispatch()
    run.refresh_from_db()
    assert (run.expected_s, run.state) == (UNKNOWN_S, "failed")
    assert run.message.startswith("This version cannot read its config")


# --- when it starts ---------------------------------------------------------------------------------------------------


def test_place_and_start_follow_the_order_and_the_estimates(people):
    gpu, (ada, bob) = device(), people
    begin(submit(gpu, expected_s=100, user=bob), gpu, since_s=40)
    long, short = submit(gpu, expected_s=600, user=ada), submit(gpu, expected_s=30, user=ada)
    of_bob = submit(gpu, expected_s=10, user=bob)
    assert starts_in(short) == (1, pytest.approx(60, abs=5))
    assert starts_in(long) == (2, pytest.approx(90, abs=5)), "by then ada has used 30 s, bob 100 s"
    assert starts_in(of_bob) == (3, pytest.approx(690, abs=5))


def test_a_forecast_is_what_the_dispatcher_would_do_and_compares_few_runs(people, monkeypatch):
    """A page that is polled asks for it: 500 waiting runs took a quarter of a second."""
    gpu, chance = device(), random.Random(5)
    Run.objects.bulk_create(
        Run(
            config={}, gpu=gpu if chance.random() < 0.5 else None, device_name=gpu.name, user=chance.choice(people),
            expected_s=chance.randint(1, 900), priority=chance.randint(0, 1), total=1,
        )
        for _ in range(200)
    )  # fmt: skip
    left, used, naive = waiting(), {}, []
    while run := next_of(left, gpu, used):
        left.remove(run)
        naive.append(run.pk)
        used[run.user_id] = used.get(run.user_id, 0.0) + run.expected_s
    compared, order = [], queue._order
    monkeypatch.setattr(queue, "_order", lambda *given: compared.append(1) or order(*given))
    found = forecasts()
    assert sorted(found, key=lambda pk: (found[pk].starts_at, found[pk].place)) == naive
    assert len(compared) < 10 * len(naive)


def test_two_devices_of_a_model_share_their_queue():
    one, two = device(), device("GPU-2", index=1)
    begin(submit(one, expected_s=100), one, since_s=0)
    begin(submit(two, expected_s=50), two, since_s=0)
    runs = [submit(device_name="NVIDIA H200", expected_s=30) for _ in range(3)]
    assert [starts_in(run) for run in runs] == [
        (1, pytest.approx(50, abs=5)),
        (2, pytest.approx(80, abs=5)),
        (3, pytest.approx(100, abs=5)),
    ]
    assert [run.pk for run, _ in queue_of(two)] == [run.pk for run in runs]


def test_a_run_that_no_device_takes_has_a_place_and_no_time():
    gpu = device(seen_at=timezone.now() - timedelta(hours=1))
    first, second = submit(gpu), submit(gpu)
    assert (starts_in(first), starts_in(second)) == ((1, None), (2, None))


def test_a_run_that_has_been_sent_does_not_wait():
    gpu = device()
    submit(gpu)
    (run,) = dispatch()
    assert forecast(run) is None


def test_a_run_that_takes_longer_than_expected_is_about_to_end():
    gpu = device()
    begin(submit(gpu, expected_s=10), gpu, since_s=500)
    assert starts_in(submit(gpu)) == (1, pytest.approx(0, abs=5))


# --- paused devices ---------------------------------------------------------------------------------------------------


def test_a_paused_device_finishes_its_run_and_takes_no_other(owner, people):
    gpu = device()
    going_on = submit(gpu)
    assert dispatch() == [going_on]
    page = owner.post(reverse("pause_gpu", args=[gpu.pk]), {"why": "driver update"}, follow=True).content.decode()
    assert "NVIDIA H200 on gpu-3 is paused: driver update." in page and f"Run {going_on.pk} goes on." in page
    going_on.refresh_from_db()
    assert going_on.state == "queued" and going_on.sent_at
    going_on.advance(Run.State.DONE)
    waits = submit(gpu)
    assert dispatch() == []
    assert Gpu.objects.get().state == "paused"
    assert "is paused: driver update. The run waits." in owner.get(waits.get_absolute_url()).content.decode()
    owner.post(reverse("resume_gpu", args=[gpu.pk]))
    assert dispatch() == [waits]


def test_a_run_for_any_device_of_a_model_goes_to_one_that_is_not_paused(owner):
    paused, other = device(), device("GPU-2", index=1)
    owner.post(reverse("pause_gpu", args=[paused.pk]))
    run = submit(device_name="NVIDIA H200")
    assert [(one, one.gpu) for one in dispatch()] == [(run, other)]


def test_who_paused_it_and_why_stay_if_another_person_pauses_it(owner):
    gpu = device()
    owner.post(reverse("pause_gpu", args=[gpu.pk]), {"why": "first"})
    owner.post(reverse("pause_gpu", args=[gpu.pk]), {"why": "second"})
    gpu.refresh_from_db()
    assert gpu.paused_why == "first" and gpu.paused_by is not None


def test_a_devices_page_lists_its_queue(owner, people):
    gpu = device()
    begin(submit(gpu, expected_s=100), gpu, since_s=0)
    submit(gpu, expected_s=240, user=people[0], title="A long one")
    page = owner.get(reverse("gpu", args=[gpu.pk])).content.decode()
    row = page.split('id="queue-title"')[1].split("</section>")[0]
    assert "A long one" in row and "ada" in row and "starts in about" in row


# --- on every model ---------------------------------------------------------------------------------------------------


def test_a_run_on_every_model_is_one_run_for_each(owner, typed, gpu, cpu, silent, make_gpu):
    make_gpu("GPU-2", index=1)
    form = owner.get(reverse("new_run")).context["form"]
    assert ("every", f"every model: {gpu.name}, AMD EPYC") in form.fields["device"].choices
    answer = owner.post(reverse("new_run"), typed | {"device": "every"})
    runs = list(Run.objects.order_by("pk"))
    assert answer.url == runs[0].get_absolute_url()
    assert [(run.device_name, run.gpu, run.together) for run in runs] == [
        (gpu.name, None, runs[0]),
        ("AMD EPYC", None, runs[0]),
    ]
    assert runs[0].spec == runs[1].spec
    page = owner.get(answer.url).content.decode()
    assert f"run {runs[1].pk}</a> on AMD EPYC" in page
    assert f"{reverse('compare_many')}?runs={runs[0].pk},{runs[1].pk}" in page
    sent = {(run.pk, run.gpu.name) for run in dispatch()}
    assert sent == {(runs[0].pk, gpu.name), (runs[1].pk, "AMD EPYC")}


def test_every_model_is_not_offered_where_one_answers(owner, typed, gpu, silent):
    form = owner.get(reverse("new_run")).context["form"]
    assert not form.offers("device", "every")
    assert owner.post(reverse("new_run"), typed | {"device": "every"}).status_code == 422


def test_what_does_not_fit_one_model_is_refused_by_name(owner, typed, gpu, cpu):
    Gpu.objects.filter(pk=cpu.pk).update(memory_bytes=2**20)
    answer = owner.post(reverse("new_run"), typed | {"device": "every"})
    assert answer.status_code == 422 and not Run.objects.exists()
    assert answer.context["form"].non_field_errors()[0].startswith("AMD EPYC: ")


def test_a_kernel_that_one_model_can_run_can_be_ticked(owner, typed, gpu, cpu):
    catalogue = [
        kernel | {"why_not": "needs a CUDA device" if kernel["name"] == "eager" else ""} for kernel in gpu.catalogue
    ]
    Gpu.objects.filter(pk=cpu.pk).update(catalogue=catalogue)
    form = owner.get(reverse("estimate"), typed | {"device": "every"}).context["form"]
    assert {kernel["name"]: kernel["why_not"] for kernel in form.catalogue}["eager"] == ""
    owner.post(reverse("new_run"), typed | {"device": "every"})
    assert all("eager" in run.spec.kernels for run in Run.objects.all())
