"""What a new run may choose from, read from the database once for all forms of a request."""

from __future__ import annotations

from functools import cached_property

from django.db.models import Case, F, When

from runs.models import Config, Gpu, Session, Submission


class Offered:
    def __init__(self) -> None:
        self._configs: dict[str, tuple[dict[str, Config], list[str]]] = {}
        self._submissions: dict[tuple[str, str], Submission | None] = {}

    @cached_property
    def gpus(self) -> list[Gpu]:
        return list(Gpu.objects.in_order())

    @cached_property
    def sessions(self) -> dict[str, str]:
        """The number of a session that has not ended -> its title."""
        return {str(pk): title for pk, title in Session.objects.filter(ended_at=None).values_list("pk", "title")}

    def configs(self, operation: str) -> tuple[dict[str, Config], list[str]]:
        """(the configs of an operation, the names of all). A config of a whole grid is long: the database sends no other
        contents."""
        if operation not in self._configs:
            own = Case(When(body__operation=operation, then=F("body")), default=None)
            rows = list(Config.objects.values_list("name", "title", own))
            found = {name: Config(name=name, title=title, body=body) for name, title, body in rows if body}
            self._configs[operation] = found, [name for name, *_ in rows]
        configs, names = self._configs[operation]
        return dict(configs), names

    def submission(self, operation: str, kernel: str) -> Submission | None:
        key = operation, kernel
        if key not in self._submissions:
            self._submissions[key] = Submission.objects.named(operation, kernel)
        return self._submissions[key]
