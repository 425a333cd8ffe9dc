"""A second opinion: a result that leads is measured again, in five fresh processes with seeds of its own, before it is called
confirmed. A person asks for it on the leaderboard; with CONFIRM_LEADERS the site asks for it itself, on devices with nothing
to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import transaction

from kernels.protocol import EFFORTS, Protocol
from kernels.submission import is_submitted
from kernels.workload import Config, Workload
from runs.models import Gpu, Run
from runs.queries import leaders
from runs.queries.leaders import Place

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from runs.models.run import RunQuerySet

CONFIRMING = "confirm"
"""Name of the config of a run that confirms."""


class NotConfirmed(ValueError):
    """A run that cannot be now. The message is a sentence."""


def config_of(place: Place) -> Config:
    """The best unconfirmed kernel of a place beside its baseline; of an unbeaten baseline, all that were compared with it.

    Submitted kernels are measured isolated, as always.
    """
    assert place.rumour is not None
    workload = Workload(**place.workload.as_json())
    best = place.rumour.best
    kernels = [best.point.kernel] if best else [placed.point.kernel for placed in place.rumour.compared]
    isolated = any(is_submitted(kernel) for kernel in kernels)
    return Config(
        name=CONFIRMING,
        title=f"{best.point.kernel if best else place.rumour.base.kernel} on {workload.label}",
        operation=workload.operation,
        kernels=kernels,
        workloads=[workload],
        protocol=Protocol(**EFFORTS["thorough"] | {"isolated": isolated}),
    )


def device_of(place: Place, config: Config) -> Gpu:
    """The card of the result if it answers, else one of its model. Raises NotConfirmed."""
    rumour = place.rumour
    assert rumour is not None
    of_model = list(Gpu.objects.online().filter(name=place.gpu).order_by("host", "index"))
    if rumour.series.gpu and not rumour.point.demo and rumour.series.gpu.is_online:
        of_model.insert(0, rumour.series.gpu)
    if not of_model:
        raise NotConfirmed(f"No {place.gpu} answers now: nothing was queued.")
    if not config.protocol.isolated:
        return of_model[0]
    able = next((gpu for gpu in of_model if not gpu.why_no_submissions), None)
    if able is None:
        raise NotConfirmed(
            f"Nothing was queued: {place.gpu} does not take submitted kernels: {of_model[0].why_no_submissions}."
        )
    return able


def confirm(place: Place, user: User | None) -> tuple[Run, bool]:
    """(the run that confirms a place, whether this call queued it). Raises NotConfirmed."""
    config = config_of(place)
    gpu = device_of(place, config)
    with transaction.atomic():
        Gpu.objects.select_for_update().get(pk=gpu.pk)  # two requests at once queue one run
        if again := _runs(config).active().filter(gpu=gpu).first():
            return again, False
        return Run.objects.submit(config, gpu=gpu, user=user, title=f"Confirm {config.title}"[:200]), True


def confirm_leaders() -> list[Run]:
    """Queues at most one run that confirms on each device with nothing to do. A result is tried once: a run that failed or
    was cancelled is repeated by a person only."""
    if not settings.CONFIRM_LEADERS:
        return []
    busy = Run.objects.active().exclude(gpu=None).values("gpu")
    idle = {gpu.pk for gpu in Gpu.objects.taking_runs().exclude(pk__in=busy)}
    started: list[Run] = []
    if not idle:
        return started
    for place in leaders.board().places:
        if place.rumour is None or place.rumour.point.demo:
            continue
        config = config_of(place)
        try:
            gpu = device_of(place, config)
        except NotConfirmed:
            continue
        if gpu.pk not in idle or _runs(config).filter(pk__gt=place.rumour.point.run).exists():
            continue
        run, is_new = confirm(place, None)
        if is_new:
            started.append(run)
            idle.discard(gpu.pk)
    return started


def _runs(config: Config) -> RunQuerySet:
    """The runs of it so far. Their titles may have been edited; the title in their config has not."""
    return Run.objects.filter(config_name=CONFIRMING, config__title=config.title)
