"""A second opinion: a result that leads is measured again with seeds of its own, in five fresh processes and in five isolated
ones, before it is called confirmed. A person asks for it on the leaderboard; with CONFIRM_LEADERS the site asks for it itself,
on devices with nothing to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import transaction

from kernels import HARNESS_VERSION
from kernels.analysis.confirmation import ENOUGH, Opinion, is_thorough
from kernels.analysis.statistics import WIDEST_MARGIN
from kernels.contract.arm_result import Status
from kernels.protocol import EFFORTS, Protocol
from kernels.submission import is_submitted
from kernels.workload import Config, Workload
from runs.models import Gpu, Run
from runs.queries import leaders, opinions
from runs.queries.leaders import Place, Record
from runs.queries.points import Point

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from runs.models.run import RunQuerySet

CONFIRMING = "confirm"
"""Name of the config of a run that confirms."""


class NotConfirmed(ValueError):
    """A run that cannot be now. The message is a sentence."""


def configs_of(place: Place) -> list[Config]:
    """What is missing to confirm the best unconfirmed kernel of a place, or an unbeaten baseline: measured in five processes,
    and in five isolated ones. Submitted kernels are always isolated; a baseline needs no second opinion."""
    rumour = place.rumour
    assert rumour is not None
    best = rumour.best
    kernels = [best.point.kernel] if best else [placed.point.kernel for placed in rumour.compared]
    if any(is_submitted(kernel) for kernel in kernels):
        return [_config(place, kernels, isolated=True)]
    thorough = _counts_as_thorough(rumour)
    missing = [] if thorough and best else [_config(place, kernels, isolated=False)]
    if best and _is_open(opinion_of(place), rumour.point, thorough):
        missing.append(_config(place, kernels, isolated=True))
    return missing


def _counts_as_thorough(rumour: Record) -> bool:
    """Whether only an isolated measurement is missing. It must come from the same card, with the same driver and harness."""
    point, gpu, was = rumour.point, rumour.series.gpu, rumour.series.environment
    if not is_thorough(point.processes) or point.contended or point.margin > WIDEST_MARGIN:
        return False
    if gpu is None or not gpu.is_online or point.demo:
        return False
    return gpu.driver in ("", was.get("driver")) and was.get("harness") == HARNESS_VERSION


def _is_open(second: Point | None, point: Point, thorough: bool) -> bool:
    """Whether another isolated measurement may say more: there is none, it cannot tell, or it does not contradict a
    thorough result that an earlier version stored, and nobody has decided since."""
    if second is None:
        return True
    said = opinions.said(point.speedup_low, second)
    return said == Opinion.CANNOT_TELL or (thorough and said in ENOUGH)


def opinion_of(place: Place, confirmed: bool = False) -> Point | None:
    """The isolated result of the best unconfirmed kernel of a place; confirmed: of its record."""
    record = place.record if confirmed else place.rumour
    if record is None or record.best is None or record.point.isolated:
        return None
    point = record.point
    where = opinions.Place(place.workload.key, point.gpu, record.series.terms.fingerprint, point.demo)
    known = opinions.isolated(where, [point.kernel])
    return known.get(opinions.key_of(point.kernel, point.sha256))


def _config(place: Place, kernels: list[str], isolated: bool) -> Config:
    """These kernels beside the baseline."""
    assert place.rumour is not None
    workload = Workload(**place.workload.as_json())
    best = place.rumour.best
    what = best.point.kernel if best else f"that no kernel is faster than {place.rumour.base.kernel}"
    return Config(
        name=CONFIRMING,
        title=f"{what} on {workload.label}{', isolated' * isolated}",
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
        raise NotConfirmed(f"No {place.gpu} is online. Nothing was queued.")
    if not any(is_submitted(kernel) for kernel in config.kernels):
        return of_model[0]
    able = next((gpu for gpu in of_model if not gpu.why_no_submissions), None)
    if able is None:
        raise NotConfirmed(
            f"Nothing was queued: {place.gpu} does not take submitted kernels: {of_model[0].why_no_submissions}."
        )
    return able


def confirm(place: Place, user: User | None) -> list[tuple[Run, bool]]:
    """(run, whether this call queued it) of each run that is missing to confirm a place. Raises NotConfirmed."""
    if not (configs := configs_of(place)):
        second = opinion_of(place)
        assert second is not None
        raise NotConfirmed(
            f"Nothing was queued. The second opinion does not agree: {phrase_of(second)} (run {second.run})."
        )
    return [_submitted(place, config, user) for config in configs]


def phrase_of(second: Point) -> str:
    """What an isolated result says, as a phrase."""
    if second.status != Status.OK:
        return f"{second.status} in isolation"
    if second.ratio is None:
        return f"{second.why or 'nothing was decided'}, in isolation"
    return f"{second.ratio.ratio:.3f}x ({second.ratio.low:.3f} to {second.ratio.high:.3f}) in isolation"


def _submitted(place: Place, config: Config, user: User | None) -> tuple[Run, bool]:
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
    idle = dict(Gpu.objects.taking_runs().exclude(pk__in=busy).values_list("pk", "name"))
    started: list[Run] = []
    for place in leaders.board().places if idle else ():
        if place.rumour is None or place.rumour.point.demo or place.gpu not in idle.values():
            continue
        for config in configs_of(place):
            try:
                gpu = device_of(place, config)
            except NotConfirmed:
                continue
            if gpu.pk not in idle or _runs(config).filter(pk__gt=place.rumour.point.run).exists():
                continue
            run, is_new = _submitted(place, config, None)
            if is_new:
                started.append(run)
                del idle[gpu.pk]
    return started


def _runs(config: Config) -> RunQuerySet:
    """The runs of it so far. Their titles may have been edited; the title in their config has not."""
    return Run.objects.filter(config_name=CONFIRMING, config__title=config.title)
