"""404 and 403 pages: say what does not exist, or what a role does not allow, and link on."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

NOUNS = {
    "Run": "run", "Gpu": "device", "Session": "session", "Import": "import", "TierScale": "tier scale",
    "StatusPage": "status page", "Change": "change", "Submission": "submission", "Schedule": "schedule", "Webhook": "webhook",
    "User": "person", "Person": "person",
}  # fmt: skip
"""Model name in get_object_or_404's message -> name on pages."""


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return render(request, "404.html", {"sentence": _sentence(request, exception)}, status=404)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Says what the role of this person does not allow."""
    said = str(exception.args[0]) if exception.args else ""
    return render(request, "403.html", {"sentence": said}, status=403)


def _sentence(request: HttpRequest, exception: Exception) -> str:
    said = exception.args[0] if exception.args else ""
    if not request.resolver_match or not isinstance(said, str) or not said:
        return "There is nothing at this address."
    for model, noun in NOUNS.items():
        if said == f"No {model} matches the given query.":
            number = request.resolver_match.kwargs.get("pk")
            return f"There is no such {noun}." if number is None else f"There is no {noun} {number}."
    return f"{said[:1].upper()}{said[1:200].rstrip('.')}."
