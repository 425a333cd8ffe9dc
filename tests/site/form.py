"""The form of a new run as a browser sends it, and what comes back."""

import re

from django.urls import reverse

from runs.models import Run

PAGE, ESTIMATE = reverse("new_run"), reverse("estimate")


def submitted(client, sent):
    """The run that a form makes."""
    answer = client.post(PAGE, sent)
    assert answer.status_code == 302, dict(answer.context["form"].errors)
    run = Run.objects.latest("pk")
    assert answer.url == reverse("run", args=[run.pk])
    return run


def refused(client, sent):
    """The form as it comes back, with the page."""
    before = Run.objects.count()
    answer = client.post(PAGE, sent)
    assert answer.status_code == 422
    assert Run.objects.count() == before
    return answer.context["form"], answer.content.decode()


def field_of(page, name):
    """The part of the page in which one field and its message stand."""
    label = re.search(rf'name="{name}"', page)
    assert label, name
    start = max(page.rfind('class="field', 0, label.start()), page.rfind("<fieldset", 0, label.start()))
    end = page.find('class="field', label.start())
    return page[start : end if end > 0 else None]


def asked(client, sent, **more):
    return client.get(ESTIMATE, sent | more).content.decode()


def again(client, run):
    """What a form holds that is to repeat a run, as a browser would send it."""
    form = client.get(PAGE, {"again": run.pk}).context["form"]
    sent = {name: form[name].value() for name in form.fields}
    return {name: "" if value is None else value for name, value in sent.items()}
