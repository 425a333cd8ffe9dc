"""The queue in words: when a run starts, why a device takes none, and the runs of other models that go with one."""

from __future__ import annotations

from datetime import datetime

from django import template
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join

from runs.models import Gpu, Run
from runs.templatetags.figures import duration

register = template.Library()
SOON_S = 10.0


@register.simple_tag
def starts(at: datetime | None) -> str:
    """When a run is expected to start: an estimate. None: no device takes it."""
    if at is None:
        return "no device takes it now"
    left_s = (at - timezone.now()).total_seconds()
    return "starts within seconds" if left_s < SOON_S else f"starts in about {duration(left_s)}"


@register.simple_tag
def paused(gpu: Gpu) -> str:
    """Why a paused device takes no runs, as a sentence. Without names: shared pages have it too."""
    why = f": {gpu.paused_why.rstrip('.')}" if gpu.paused_why else ""
    return f"{gpu.name} on {gpu.host} is paused{why}."


@register.simple_tag
def companions(run: Run) -> str:
    """Links to the runs that were launched with one on other models, and to all of them side by side."""
    found = Run.objects.filter(together=run.together_id).select_related("gpu").defer("config", "gpu__catalogue")
    runs = list(found.order_by("pk"))
    links = format_html_join(
        ", ",
        '<a href="{}">run {}</a> on {}',
        ((one.get_absolute_url(), one.pk, one.device_name) for one in runs if one != run),
    )
    beside = f"{reverse('compare_many')}?runs={','.join(str(one.pk) for one in runs)}"
    return format_html('{} · <a href="{}">side by side</a>', links, beside)
