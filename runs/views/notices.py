"""Notices of a person: their mail, their webhooks, and what was delivered."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from runs import outgoing
from runs.access import person
from runs.models import Delivery, MailChoice, Notice, Webhook
from runs.models.notice import MOST_WEBHOOKS, Event, Kind

RECENT = 30


class Kinds(forms.MultipleChoiceField):
    def __init__(self, **more: Any) -> None:
        super().__init__(choices=Kind.choices, widget=forms.CheckboxSelectMultiple, label="When", **more)


class MailForm(forms.Form):
    email = forms.EmailField(label="Address", required=False, max_length=254)
    kinds = Kinds(required=False)

    def clean(self) -> dict[str, Any]:
        said = super().clean() or {}
        if said.get("kinds") and not said.get("email") and "email" not in self.errors:
            self.add_error("email", "Enter the address to which the mail is sent.")
        return said


class WebhookForm(forms.Form):
    url = forms.CharField(
        label="Address", max_length=500, help_text="https://… It receives JSON by POST.", widget=forms.URLInput
    )
    kinds = Kinds()

    def __init__(self, *arguments: Any, user: User | None, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.user = user

    def clean_url(self) -> str:
        url: str = self.cleaned_data["url"].strip()
        try:
            outgoing.resolved(outgoing.parsed(url))
        except outgoing.Refused as error:
            raise forms.ValidationError(str(error)) from None
        except (OSError, UnicodeError):
            raise forms.ValidationError("The host name could not be resolved. Check the spelling.") from None
        return url

    def clean(self) -> dict[str, Any]:
        if Webhook.objects.filter(user=self.user).count() >= MOST_WEBHOOKS:
            self.add_error("url", f"You have {MOST_WEBHOOKS} webhooks: delete one first.")
        return super().clean() or {}


@never_cache
def notices(request: HttpRequest) -> HttpResponse:
    """The page, and the form of a new webhook. Its secret is in the answer to the form, and nowhere else."""
    user = _must_be_person(request)
    form, secret = WebhookForm(request.POST or None, user=user, label_suffix=""), ""
    status = 200
    if request.method == "POST":
        if form.is_valid():
            _row, secret = Webhook.make(user, form.cleaned_data["url"], form.cleaned_data["kinds"])
            form = WebhookForm(user=user, label_suffix="")
        else:
            status = 422
    return _page(request, user, form, MailForm(initial=_chosen(user), label_suffix=""), status, secret)


@require_POST
def choose_mail(request: HttpRequest) -> HttpResponse:
    user = _must_be_person(request)
    form = MailForm(request.POST, label_suffix="")
    if not form.is_valid():
        return _page(request, user, WebhookForm(user=user, label_suffix=""), form, 422)
    user.email = form.cleaned_data["email"]
    user.save(update_fields=["email"])
    MailChoice.objects.update_or_create(user=user, defaults={"kinds": form.cleaned_data["kinds"]})
    messages.success(request, "Saved.")
    return redirect("notices")


@require_POST
def delete_webhook(request: HttpRequest, pk: int) -> HttpResponse:
    get_object_or_404(Webhook, pk=pk, user=request.user.pk).delete()
    return redirect("notices")


@require_POST
def test_webhook(request: HttpRequest, pk: int) -> HttpResponse:
    """Sends it a notice without a meaning, also if it was stopped."""
    webhook = get_object_or_404(Webhook, pk=pk, user=request.user.pk)
    Webhook.objects.filter(pk=webhook.pk).update(stopped="")
    key = f"{webhook.pk}:{timezone.now().isoformat()}"
    notice = Notice.objects.create(event=Event.TEST, key=key, sentence="This is a test.", path=reverse("notices"))
    Delivery.objects.create(notice=notice, webhook=webhook)
    messages.success(request, "A test is sent within 15 seconds. Its answer is in the list of deliveries.")
    return redirect("notices")


def _must_be_person(request: HttpRequest) -> User:
    if (user := person(request)) is None:
        raise Http404
    return user


def _chosen(user: User) -> dict[str, Any]:
    choice = MailChoice.objects.filter(user=user).first()
    return {"email": user.email, "kinds": choice.kinds if choice else []}


def _page(
    request: HttpRequest, user: User, form: WebhookForm, mail: MailForm, status: int = 200, secret: str = ""
) -> HttpResponse:
    chosen = _chosen(user)
    deliveries = Delivery.objects.filter(Q(webhook__user=user) | Q(user=user)).select_related(
        "notice", "webhook", "user"
    )
    context = {
        "form": form, "mail": mail, "secret": secret, "webhooks": list(Webhook.objects.filter(user=user)),
        "deliveries": deliveries[:RECENT], "address": user.email if chosen["kinds"] else "",
        "sends_mail": settings.SENDS_MAIL,
    }  # fmt: skip
    return render(request, "notices.html", context, status=status)
