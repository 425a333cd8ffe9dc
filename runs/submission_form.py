"""The form of a submission: files, what they are, and where to measure them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.utils.html import format_html
from pydantic import ValidationError

from kernels.catalog import PROBLEM, operations
from kernels.formats.adding import read
from kernels.formats.safetensors import SUFFIX, text_of
from kernels.git_source import GitSource
from kernels.starts import starts
from kernels.submission import MAX_BYTES, Unreadable, kernel_of
from kernels.sweep import example
from kernels.workload import Workload
from runs.models import Config, Gpu, Submission
from runs.submitting import NotSubmitted, config_for, device_for

EFFORTS = [
    ("quick", "quick: a few seconds a workload, wide intervals"),
    ("normal", "normal: until the intervals are narrow"),
    ("thorough", "thorough: five fresh processes, which a confirmed result needs"),
]


@dataclass
class File:
    """One file in the form."""

    name: str
    text: str

    @property
    def lines(self) -> int:
        """Height of its field, in lines."""
        return min(40, max(12, self.text.count("\n") + 2))


def typed_files(names: list[str], texts: list[str]) -> list[File]:
    """The files of the form's fields; a browser sends line breaks as CR LF."""
    pairs = zip(names, texts, strict=False)
    files = [File(name.strip(), text.replace("\r\n", "\n")) for name, text in pairs]
    return [file for file in files if file.name or file.text.strip()]


def dropped_files(uploads: list[UploadedFile[bytes]]) -> list[File]:
    """Uploaded files. Raises Unreadable for one that is too large, or no text."""
    files = []
    for upload in uploads:
        name = str(upload.name)
        if (upload.size or 0) > MAX_BYTES:
            raise Unreadable(f"{name} has {upload.size:,} bytes; the limit is {MAX_BYTES:,}")
        try:
            data = upload.read()
            files.append(File(name, text_of(data) if name.endswith(SUFFIX) else data.decode("utf-8")))
        except UnicodeDecodeError:
            raise Unreadable(f"{name} is not text in UTF-8") from None
    return files


def as_sentence(error: Exception) -> str:
    """The message with a full stop, and with a capital letter, unless it begins with a file's name."""
    text = str(error).rstrip(".")
    begins_with_a_file = "." in text.partition(" ")[0]
    return f"{text if begins_with_a_file else text[:1].upper() + text[1:]}."


def examples() -> dict[str, str]:
    """Operation -> sizes that somebody could name for it, from its first config."""
    first: dict[str, dict[str, Any]] = {}
    for body in Config.objects.exclude(body__operation="").values_list("body", flat=True):
        first.setdefault(body["operation"], body["workloads"][0])
    return {operation: example(Workload(**workload)) for operation, workload in first.items()}


class WhereForm(forms.Form):
    """Where and how to measure a submission."""

    device = forms.ChoiceField(label="Device", required=False)
    config = forms.ChoiceField(
        label="Config",
        required=False,
        help_text="Whose workloads are measured. Smallest: one small workload, which takes a few seconds.",
    )
    sweep = forms.CharField(
        label="Sizes",
        required=False,
        max_length=500,
    )
    effort = forms.ChoiceField(label="Effort", choices=EFFORTS, required=False)
    beside = forms.BooleanField(label="measure its parent in the same rounds", required=False, initial=True)

    def __init__(self, *args: Any, operation: str = "", only_store: bool = False, **kwargs: Any) -> None:
        """operation: offer its configs only. only_store: offer not to measure, too."""
        super().__init__(*args, **kwargs)
        self.gpus = list(Gpu.objects.in_order())
        able = [gpu for gpu in self.gpus if not gpu.why_no_submissions]
        self.refusing = [gpu for gpu in self.gpus if gpu.why_no_submissions]
        devices = [(str(gpu.pk), f"{gpu.name} · {gpu.place} · {gpu.state}") for gpu in able]
        if only_store or not devices:
            devices.append(("", "none: store without measuring"))
        configs = (
            Config.objects.filter(body__operation=operation)
            if operation
            else Config.objects.exclude(body__operation="")
        )
        names = [(c.name, f"{c.name} · {c.title}" if c.title else c.name) for c in configs]
        self._choice("device").choices = devices
        self.initial.setdefault("device", devices[0][0])
        self._choice("config").choices = [
            ("", "the smallest of its operation, or the problem that comes with it"),
            *names,
        ]
        self.has_config = operation != PROBLEM
        self._give_example(operation)

    def _give_example(self, operation: str) -> None:
        """Sizes of the operation as an example; of none, a script shows those of the operation that the source names."""
        known = examples()
        said = known.get(operation) or next(iter(known.values()), "rows=1024,4096")
        self.fields["sweep"].help_text = format_html(
            "Instead of the config's, such as <code data-example>{}</code>: every combination is measured.", said
        )
        self.fields["sweep"].widget.attrs["data-examples"] = json.dumps(known)

    def _choice(self, name: str) -> forms.ChoiceField:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        return field

    def run_of(self, submission: Submission) -> tuple[Any, Any] | None:
        """(device, config) of the run that was asked for; None: none was. Marks the field and raises NotSubmitted."""
        chosen = self.cleaned_data
        if not chosen["device"]:
            return None
        beside = _parent_of(submission) if chosen["beside"] else []
        try:
            device = device_for(chosen["device"])
            sweep = chosen["sweep"].split()
            return device, config_for(submission, chosen["config"], chosen["effort"], beside, sweep)
        except NotSubmitted as error:
            self.add_error(error.field, str(error))
            raise


def _parent_of(submission: Submission) -> list[str]:
    """The kernel of its parent, if that is for the same operation, or for the same problem."""
    parent = submission.parent
    if parent is None or parent.operation != submission.operation or parent.problem != submission.problem:
        return []
    return [parent.kernel]


def are_untouched(files: list[File]) -> bool:
    """Whether these are files to start from that nobody has changed."""
    texts = {one.text.strip() for one in starts()}
    return all(file.text.strip() in {*texts, ""} for file in files)


def are_a_kernel(files: list[File]) -> bool:
    """Whether these files are a whole kernel by themselves."""
    try:
        return bool(files and kernel_of(read({file.name: file.text for file in files}).kernel))
    except Unreadable:
        return False


def _operation_of(files: list[File]) -> str:
    """Of the kernel that these files declare; empty if they declare none."""
    try:
        return kernel_of(read({file.name: file.text for file in files}).kernel).operation
    except Unreadable:
        return ""


class SubmissionForm(WhereForm):
    """A new submission. `sources` are the files of its fields, then those that were dropped."""

    message = forms.CharField(label="What it changes", required=False, max_length=2000)
    git_url = forms.CharField(
        label="Address", required=False, max_length=500,
        help_text="https://, ssh:// or file://. The device's host must reach it, and its owner must list it in GIT_SOURCES.",
    )  # fmt: skip
    git_commit = forms.CharField(
        label="Commit", required=False, max_length=40, help_text="All 40 digits, as git rev-parse HEAD prints them."
    )
    git_folder = forms.CharField(
        label="Folder",
        required=False,
        max_length=500,
        help_text="The folder with the kernel's files. Leave it empty for the whole repository.",
    )
    git_kernel = forms.CharField(
        label="Kernel", required=False, max_length=60, help_text="Its name, as its file declares it."
    )
    git_operation = forms.ChoiceField(
        label="Operation", required=False, choices=lambda: [(name, name) for name in operations()]
    )

    def __init__(self, *args: Any, typed: list[File], uploads: list[UploadedFile[bytes]], **kwargs: Any) -> None:
        super().__init__(*args, only_store=True, **kwargs)
        self.typed, self.uploads = typed, uploads
        self._give_example(str(self["git_operation"].value() or "") if self.is_from_git else _operation_of(typed))

    @property
    def is_from_git(self) -> bool:
        return bool(self["git_url"].value())

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        self.source: GitSource | None = None
        if cleaned.get("git_url"):
            self._read_source(cleaned)
            return cleaned
        try:
            dropped = dropped_files(self.uploads)
            typed = [] if are_untouched(self.typed) and are_a_kernel(dropped) else self.typed
            found = {file.name: file for file in [*typed, *dropped]}
            self.typed = list(found.values())
            self.sources = read({file.name: file.text for file in self.typed})
            self.kernel = kernel_of(self.sources.kernel)
            self._fits(cleaned, self.kernel.operation, self.kernel.name)
        except Unreadable as error:
            self.add_error(None, as_sentence(error))
        return cleaned

    def _read_source(self, cleaned: dict[str, Any]) -> None:
        """Of a kernel in a repository."""
        names = ("url", "commit", "folder", "kernel")
        said = {name: (cleaned.get(f"git_{name}") or "").strip() for name in names}
        try:
            self.source = GitSource.model_validate(said | {"commit": said["commit"].lower()})
        except ValidationError as error:
            for one in error.errors():
                self.add_error(f"git_{one['loc'][0]}", as_sentence(one["ctx"]["error"]))
            return
        if "git_operation" in cleaned:
            self._fits(cleaned, cleaned["git_operation"], said["kernel"])

    def _fits(self, cleaned: dict[str, Any], operation: str, name: str) -> None:
        """Says of a config of another operation before anything is stored."""
        if cleaned.get("device") and not self.errors:
            sweep = cleaned["sweep"].split()
            if operation == PROBLEM and not cleaned["config"] and not sweep:
                return  # its workload is its own
            try:
                config_for(Submission(operation=operation, name=name), cleaned["config"], sweep=sweep)
            except NotSubmitted as error:
                self.add_error(error.field, str(error))
