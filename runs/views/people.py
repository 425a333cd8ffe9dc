"""People, for admins: accounts with their roles; a new password is shown once."""

from __future__ import annotations

import secrets
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.paginator import Paginator
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from runs.models import Audit, Person, Role
from runs.models.person import role_of

PASSWORD_BYTES = 12
PER_PAGE = 100
TAKEN = "There is an account with this name already: choose another name."


class AddForm(forms.Form):
    username = forms.CharField(label="Name", max_length=150, validators=[UnicodeUsernameValidator()])
    role = forms.ChoiceField(choices=Role.choices, initial=Role.ENGINEER)

    def clean_username(self) -> str:
        name = str(self.cleaned_data["username"])
        if User.objects.filter(username__iexact=name).exists():
            raise forms.ValidationError(TAKEN)
        return name


def listed_role(user: User) -> Role:
    """Its role; of an account that is disabled, that which it has when it is enabled again."""
    person: Person | None = getattr(user, "person", None)
    return Role.ADMIN if user.is_superuser else Role(person.role) if person else Role.VIEWER


def _page(request: HttpRequest, form: AddForm, shown: tuple[str, str] | None = None, status: int = 200) -> HttpResponse:
    """shown: (name, password), in this answer and nowhere else."""
    known = User.objects.select_related("person").order_by("-is_active", "username")
    pages = Paginator(known, PER_PAGE).get_page(request.GET.get("page"))
    rows = [{"one": one, "role": listed_role(one)} for one in pages]
    context: dict[str, Any] = {"pages": pages, "rows": rows, "form": form, "shown": shown, "roles": Role.choices}
    return render(request, "people.html", context, status=status)


@never_cache
def people(request: HttpRequest) -> HttpResponse:
    """The list, and the form of a new account."""
    form = AddForm(request.POST or None, label_suffix="")
    if request.method != "POST":
        return _page(request, form)
    if not form.is_valid():
        return _page(request, form, status=422)
    name, role, password = form.cleaned_data["username"], form.cleaned_data["role"], _password()
    try:
        with transaction.atomic():
            user = User.objects.create_user(name, password=password)
            Person.objects.filter(user=user).update(role=role)
            Audit.objects.note(request.user, Audit.Kind.ADDED, f"{name}, {role}")
    except IntegrityError:  # somebody added it at the same moment
        form.add_error("username", TAKEN)
        return _page(request, form, status=422)
    return _page(request, AddForm(label_suffix=""), (name, password))


def _password() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)


def _admins() -> int:
    return sum(role_of(one) == Role.ADMIN for one in User.objects.select_related("person").filter(is_active=True))


def _get(pk: int) -> User:
    """The account. It is locked with all admins, in one order: else two admins could take the role from each other at once."""
    admins = Q(is_superuser=True) | Q(person__role=Role.ADMIN)
    list(User.objects.select_for_update(of=("self",)).filter(admins | Q(pk=pk)).order_by("pk"))
    return get_object_or_404(User.objects.select_related("person"), pk=pk)


@require_POST
@transaction.atomic
def role(request: HttpRequest, pk: int) -> HttpResponse:
    user, wanted = _get(pk), request.POST.get("role", "")
    before = listed_role(user)
    if wanted not in Role.values:
        messages.error(request, "Choose one of the roles viewer, engineer and admin.")
    elif before == Role.ADMIN and wanted != Role.ADMIN and user.is_active and _admins() == 1:
        messages.error(request, f"{user} is the only admin: make somebody else an admin first.")
    elif wanted != before:
        if wanted != Role.ADMIN and user.is_superuser:
            user.is_superuser = user.is_staff = False
            user.save(update_fields=["is_superuser", "is_staff"])
        Person.objects.update_or_create(user=user, defaults={"role": wanted})
        Audit.objects.note(request.user, Audit.Kind.ROLE, f"{user}: {before.value} to {wanted}")
        messages.info(request, f"{user} is now {'an' if wanted != Role.VIEWER else 'a'} {wanted}.")
    return redirect("people")


@require_POST
@transaction.atomic
def state(request: HttpRequest, pk: int) -> HttpResponse:
    """Disables an account, or enables it again. Its runs, links and sessions of work stay."""
    user = _get(pk)
    if user.is_active and role_of(user) == Role.ADMIN and _admins() == 1:
        messages.error(request, f"{user} is the only admin: make somebody else an admin first.")
        return redirect("people")
    user.is_active = not user.is_active
    user.save(update_fields=["is_active"])
    kind = Audit.Kind.ENABLED if user.is_active else Audit.Kind.DISABLED
    Audit.objects.note(request.user, kind, str(user))
    messages.info(
        request,
        f"{user} can log in again."
        if user.is_active
        else f"{user} cannot log in any more, and the tokens of this account are refused.",
    )
    return redirect("people")


@never_cache
@require_POST
def reset(request: HttpRequest, pk: int) -> HttpResponse:
    """Gives somebody a new password, which ends its logins. Of a superuser only another: /admin/ would be open to every admin."""
    user, password = get_object_or_404(User, pk=pk), _password()
    if user.is_superuser and not getattr(request.user, "is_superuser", False):
        messages.error(
            request, f"{user} is a superuser: only a superuser gives it a new password, or manage.py changepassword."
        )
        return redirect("people")
    with transaction.atomic():
        user.set_password(password)
        user.save(update_fields=["password"])
        Audit.objects.note(request.user, Audit.Kind.RESET, str(user))
    return _page(request, AddForm(label_suffix=""), (user.get_username(), password))
