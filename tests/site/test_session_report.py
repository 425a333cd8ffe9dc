"""The report of a session: from its runs, from the sample's claims, in four forms, by link; nothing in it runs script."""

import base64
import io
import json
import re
from datetime import timedelta
from types import SimpleNamespace

import altair as alt
import pytest
from cast import load
from django.urls import reverse
from django.utils import timezone

from kernels.analysis.criteria import Word
from kernels.analysis.findings_one import Timed
from kernels.contract.export import read_export
from kernels.contract.profile import Profile
from kernels.workload import Workload
from runs.charts import session_charts
from runs.charts.theme import THEMES
from runs.markdown import as_typed, rendered
from runs.models import KernelProfile, Note, Result, Run, Session, Share, TierScale
from runs.pipeline import importer, withdrawal
from runs.queries import ladder
from runs.queries.figures import claimed_figures
from runs.queries.session_report import _of_criteria, session_report
from runs.templatetags.figures import timespan

ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)>"
ROW = {"title": "", "kernel": "", "speedup": None, "at_least": None, "workloads": "", "p90": False, "correct": False}


@pytest.fixture
def session(owner):
    criteria = [ROW | {"kernel": "triton-flash", "speedup": 1.1, "at_least": 2, "correct": True}]
    phases = [
        {
            "number": 0,
            "title": "Baselines",
            "state": "done",
            "planned_min": 30,
            "actual_min": 25,
            "after": [],
            "text": "",
        },
        {
            "number": 1,
            "title": "Tiles",
            "state": "blocked",
            "planned_min": 90,
            "actual_min": None,
            "after": [0],
            "text": "",
        },
        {
            "number": 2,
            "title": "Confirm",
            "state": "pending",
            "planned_min": None,
            "actual_min": None,
            "after": [1],
            "text": "",
        },
    ]
    return Session.objects.create(title="Beat cuDNN", user=owner.user, criteria=criteria, phases=phases)


@pytest.fixture
def ran(measured, session):
    def make(**asked):
        run = measured(**asked)
        Run.objects.filter(pk=run.pk).update(session=session)
        run.refresh_from_db()
        return run

    return make


@pytest.fixture
def sample(db):
    importer.load_sample_claims()
    (session,) = importer.load_sample_sessions()
    return session


def forms(client, session):
    """The report in each form, by its name."""
    pages = {
        name: reverse(name, args=[session.pk]) for name in ("session", "session_report", "session_md", "session_html")
    }
    return {name: client.get(address).content.decode() for name, address in pages.items()}


# --- the sample: a published report, rebuilt from its claims ----------------------------------------------------------


def test_the_sample_finds_by_itself_what_its_document_does_not_say(owner, sample):
    every = {(one.kind, one.sentence) for one in session_report(sample).findings}
    said = " ".join(sentence for _, sentence in every)
    assert (
        "v3 (p50) is 133 to 837 times slower than sdpa on all 6 workloads and reaches 0.1% of the speed of light."
        in said
    )
    assert "v3 (p50): the time grows 15.3x while the work grows 16x" in said and "that of sdpa grows 3.02x" in said
    assert ("latency-bound", "small sizes are launch-bound or do not fill the GPU.") in {
        (kind, text.split("; ")[-1].split(",")[0]) for kind, text in every
    }
    assert (
        "v3 (PyTorch profiler) is reported as 172, 523, 816 times slower than sdpa; its own times give 442, 564, 949."
    ) in said
    for name, text in forms(owner, sample).items():
        assert "133 to 837 times slower" in text, name


def test_a_claim_decides_no_criterion(owner, sample):
    answers = [(one.answer.word, one.answered) for one in session_report(sample).criteria]
    assert {word for word, _ in answers} == {"cannot tell"}
    assert answers[1][1] == "Only claimed (0.0012x to 0.0075x), not measured here."
    assert answers[-1][1] == "Only claimed, not measured here."


def test_a_profile_answers_a_criterion_about_counters(owner, session, ran):
    run = ran(count=1)
    counted = {"kernel": "triton-flash", "sm_busy": 70, "no_spills": True}
    Session.objects.filter(pk=session.pk).update(criteria=[counted])
    session.refresh_from_db()
    (before,) = session_report(session).criteria
    assert before.answered.startswith("It has no profile on attention")
    launch = {"name": "flash", "duration_ns": 1e4, "sm_busy": 0.9, "shared_wavefronts": 10, "bank_conflicts": 0,
              "load_sectors": 8, "store_sectors": 8, "local_sectors": 0}  # fmt: skip
    result = run.measurements.get().results.get(kernel__name="triton-flash")
    profile = Profile(key="k", kernel="triton-flash", counters={"launches": [launch]})
    KernelProfile.objects.store(run, result, profile)
    (after,) = session_report(session).criteria
    assert (after.answer.word, after.answered) == ("holds", "triton-flash: its profile shows it on 1 of 1 workload.")
    assert "SM busy ≥ 70%, no bank conflicts above 5%, no spills" in forms(owner, session)["session"]


def test_the_sample_is_loaded_once_and_the_form_does_not_offer_it(owner, sample, gpu):
    assert importer.load_sample_sessions() == []
    assert sample.title not in owner.get(reverse("new_run")).content.decode()


def test_the_report_of_the_sample_is_whole(owner, sample):
    page = forms(owner, sample)["session_report"]
    for text in (
        "3 of 11 phases are done, 1 is blocked.", "waits for 5 (blocked)", "Nsight Compute was not installed", "worked around",
        "A: the full workflow", "Next actions", "Learnings", "Deliverables", "837x slower",
    ):  # fmt: skip
        assert text in page, text


def test_a_baseline_of_one_operation_is_none_of_another(db):
    """Claims compare `eager` with `functional` in softmax, and the other way round in layer norm."""

    def claim(operation, kernel, ms, baseline):
        sizes = {"rows": 64, "cols": 4096}
        return Timed(Workload(operation=operation, sizes=sizes), kernel, ms), baseline

    softmax = [claim("softmax", "functional", 1.0, ""), claim("softmax", "eager", 20.0, "functional")]
    norm = [claim("layer_norm", "eager", 1.0, ""), claim("layer_norm", "functional", 2.0, "eager")]
    compared = {(one.workload.operation, one.kernel): one.baseline for one in claimed_figures([*softmax, *norm])}
    assert compared == {("softmax", "functional"): "functional", ("softmax", "eager"): "functional",
                        ("layer_norm", "eager"): "eager", ("layer_norm", "functional"): "eager"}  # fmt: skip


def test_findings_of_an_operation_stay_when_a_run_of_another_is_added(gpu, session):
    """`eager` is slow in GELU, and the baseline of layer norm."""
    slow = "eager (cold) is 11 to 22 times slower than functional"
    for name in ("gelu-h200-2026-11-24.json", "layer-norm-h200-2026-11-22.json"):
        run = load(
            json.loads(read_export((importer.folder() / name).read_bytes()).model_dump_json(by_alias=True)), name
        )
        Run.objects.filter(pk=run.pk).update(demo="", gpu=gpu, session=session)
        assert slow in " ".join(one.sentence for one in session_report(session).findings), name


# --- from runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-", "The success criterion does not hold."),
        ("?", "It is unknown whether the success criterion holds."),
        ("u", "The success criterion holds, unconfirmed."),
        ("+u-??", "2 of 5 success criteria hold, 1 of them unconfirmed; 2 cannot be answered yet."),
        ("u--", "1 of 3 success criteria holds, unconfirmed."),
        ("++", "2 of 2 success criteria hold."),
    ],
)
def test_criteria_are_counted_in_a_sentence(words, said):
    word = {"+": Word.HOLDS, "u": Word.HOLDS, "-": Word.FAILS, "?": Word.UNKNOWN}
    assert _of_criteria([SimpleNamespace(word=word[one], is_confirmed=one != "u") for one in words]) == said


def test_criteria_are_answered_from_the_newest_runs(owner, ran, session):
    def word():
        return session_report(session).criteria[0].answer.word

    assert word() == "cannot tell"
    ran(count=2)
    assert word() == "holds"
    page = forms(owner, session)["session"]
    assert (
        "The success criterion holds, unconfirmed." in page
        and "Unconfirmed: a record needs five processes and an isolated measurement that agree." in page
    )
    assert 'class="tag same"><span aria-hidden="true">✓</span> holds' in page, "unconfirmed is not coloured"
    table = forms(owner, session)["session_report"].split("results told factors")[1]
    assert "<small>unconfirmed</small>" in table
    leads = re.findall('<span class="([^"]*)">▲ <a [^>]*>(<b>)?', table)
    assert leads and set(leads) == {("", "")}, "an unconfirmed lead is neither coloured nor bold"
    cells = re.findall(
        '<span class="([^"]*)">▼ <a [^>]*>(<b>)?.*?</span></a></span><small>.*?</small><small>(.*?)<', table
    )
    assert cells and set(cells) == {("", "", "unconfirmed")}, "and neither is what is slower in one process"
    last = ran(count=2)
    Result.objects.filter(measurement__run=last, kernel__name="triton-flash").update(status="incorrect", speedup=None)
    assert word() == "does not hold"


def test_what_is_slower_in_another_mode_lets_no_criterion_hold(owner, ran, session):
    session.criteria = [ROW | {"kernel": "triton-flash", "speedup": 1.1}]
    session.save()
    ran(count=2, edit={"triton-flash": 0.2}).measurements.update(mode="sustained")
    (slower,) = session_report(session).criteria
    ran(count=2)
    (both,) = session_report(session).criteria
    assert {slower.answer.word, both.answer.word} == {"does not hold"}
    assert (slower.answer.of, both.answer.of, len(both.answer.held)) == (2, 4, 2)
    assert " sustained." in both.answered and " sustained" not in slower.answered
    assert "sustained</a>:" in forms(owner, session)["session_report"].split("each workload")[1].split("</ul>")[0]


def test_what_was_measured_in_any_mode_precedes_the_claim_of_its_kernel(ran, session):
    for mode in ("sustained", "cold"):
        run = ran(count=1)
        run.measurements.update(mode=mode)
    spec = run.measurements.get().workload
    rows = [{"kernel": kernel, **spec.sizes, "dtype": spec.dtype, "p50_ms": ms, "baseline": "sdpa"}
            for kernel, ms in (("sdpa", 1.0), ("triton-flash", 5.0), ("v3", 2.0))]  # fmt: skip
    outcome = importer.import_claims(io.StringIO(json.dumps(rows)), "x.json", about="attention on NVIDIA H200")
    outcome.imported.session = session
    outcome.imported.save()
    found = session_report(session).seen
    assert {one.mode for one in found if one.kernel == "triton-flash"} == {"sustained", "cold"}
    assert [(one.is_claimed, one.mode) for one in found if one.kernel == "v3"] == [(True, "")]
    assert {one.place for one in found} == {found[0].place}


def test_a_contended_run_makes_no_criterion_hold(ran, session):
    Run.objects.filter(pk=ran(count=2).pk).update(contended=True)
    assert session_report(session).criteria[0].answer.why.startswith("other processes used the device")


def test_every_figure_links_to_its_run(owner, ran, session):
    run = ran(count=2)
    found = forms(owner, session)
    for one in run.measurements.first().results.all():
        address = reverse("result", args=[run.pk, one.pk])
        assert address in found["session_report"] or one.status != "ok"
        assert f"http://testserver{address}" in found["session_html"] or one.status != "ok"
        assert f"http://testserver{address}" in found["session_md"] or one.status != "ok"


def test_gpu_time_is_that_of_its_runs(owner, ran, session):
    for _ in range(2):
        at = timezone.now() - timedelta(hours=1)
        Run.objects.filter(pk=ran(count=1).pk).update(started_at=at, finished_at=at + timedelta(minutes=3))
    assert session_report(session).gpu_seconds == {"NVIDIA H200": 360.0}
    assert "NVIDIA H200 used <b>6 min</b>" in forms(owner, session)["session_report"]


def test_charts_are_drawn_in_both_themes_and_widths(owner, ran, session):
    ran(count=8)
    for name in ("factors", "scaling"):
        for more in ("?theme=dark", "?theme=light&narrow"):
            svg = owner.get(reverse("session_chart_svg", args=[session.pk, name]) + more)
            assert (svg.status_code, svg.headers["Content-Type"]) == (200, "image/svg+xml"), name
        png = owner.get(reverse("session_chart_png", args=[session.pk, name]))
        assert png.content.startswith(b"\x89PNG") and f"session-{session.pk}-{name}.png" in png["Content-Disposition"]
        spec = json.loads(owner.get(reverse("session_chart_json", args=[session.pk, name])).content)
        assert any("triton-flash" in str(data) for data in spec["datasets"].values())
        alt.Chart.from_dict(spec)  # validates
    for asked in ("factors.svg?theme=x", "nothing.svg"):
        assert owner.get(f"/sessions/{session.pk}/charts/{asked}").status_code == 404


def test_a_label_of_a_chart_keeps_its_sizes_and_its_kernel_whole():
    labels = ("softmax bf16 16384 x 4096", "softmax bf16 16384 x 8192")
    rows = [SimpleNamespace(label=label, kernel="quack", method="cold") for label in labels]
    assert session_charts.labels_of(rows, 240) == [["16384 x 4096"], ["16384 x 8192"]]
    long = "quack-of-a-long-name"
    rows[0].kernel = long
    assert session_charts.labels_of(rows, 240)[0] == [f"16384 x 4096 {long}"]
    assert session_charts.labels_of(rows, 140)[0] == ["16384 x 4096", long]


def test_a_tier_that_an_unconfirmed_result_reaches_is_called_so(owner, ran, session):
    run = ran(count=1)
    scale = TierScale.objects.current().first()
    (one,) = session_report(session).tiers(scale)
    assert one.tier and not one.figure.is_confirmed
    page = owner.get(reverse("session_report", args=[session.pk]))
    md = owner.get(reverse("session_md", args=[session.pk])).content.decode()
    assert (
        f"{one.tier.label}<small>, unconfirmed</small>" in page.content.decode()
        and f"{one.tier.label}, unconfirmed" in md
    )
    Result.objects.filter(measurement__run=run).update(confirmed=True)
    assert ", unconfirmed" not in owner.get(reverse("session_md", args=[session.pk])).content.decode()


def test_tiers_by_the_interval(ran, session):
    ran(count=1)
    scale = TierScale(name="mine", body=[["Good", "B", 1.2], ["Best", "A", 1.4], ["Far", "S", 3.0]])
    (one,) = session_report(session).tiers(scale)
    assert (one.figure.kernel, one.tier.name, one.next.name) == ("triton-flash", "Best", "Far")
    assert one.missing_ms == pytest.approx(one.figure.base.ms / one.figure.ratio.ratio - one.figure.base.ms / 3.0)


def test_what_is_missing_is_the_same_on_the_page_of_tiers(ran, session):
    """It was of the kernel's p50 here, and of its paired speedup there."""
    run = ran(count=1)
    scale = TierScale(name="mine", body=[["Far", "S", 3.0]])
    (one,), environment = session_report(session).tiers(scale), run.environment
    (there,) = ladder.ladders({environment.pk: environment}, scale)
    assert one.missing_ms == pytest.approx(there.missing_ms(there.next), rel=1e-12)


def test_of_kernels_that_are_not_told_apart_the_surest_is_named(ran, session):
    run = ran(count=1)
    for kernel, factor, side in (("triton-flash", 2.9, 0.01), ("sdpa-flash", 2.88, 0.001)):
        Result.objects.filter(measurement__run=run, kernel__name=kernel).update(
            speedup=factor, speedup_low=factor * (1 - side), speedup_high=factor * (1 + side)
        )
    good, better = (TierScale(name="mine", body=[["Good", "B", factor]]) for factor in (2.0, 2.875))
    for scale in (good, better):
        (one,) = session_report(session).tiers(scale)
        assert (one.figure.kernel, one.tier.name) == ("sdpa-flash", "Good"), "not the one with the highest estimate"


def test_who_is_faster_singly_and_not_of_many_is_not_the_best(owner, ran, session):
    Result.objects.filter(measurement__run=ran(count=2), kernel__name="triton-flash").update(
        speedup=1.0125, speedup_low=1.0105, speedup_high=1.0145
    )
    report = session_report(session)
    assert {one.verdict for one in report.measured if one.kernel == "triton-flash"} == {"FASTER"}
    tiers = report.tiers(TierScale(name="mine", body=[["Good", "B", 1.005]]))
    assert [(one.figure.kernel, one.tier) for one in tiers] == [("sdpa", None)] * 2
    said = f"The intervals hold for {report.comparisons} comparisons at once (Bonferroni)."
    pages = forms(owner, session)
    assert report.comparisons == 14 and said in pages["session_report"] and said in pages["session_md"]


def test_shares_of_the_way_are_no_factors(owner, ran, session):
    ran(count=1)
    half = TierScale(name="way", kind="light", body=[["A tenth", "D", 0.1], ["Half", "B", 0.5]])
    (one,) = session_report(session).tiers(half)
    base = one.figure.base
    most = base.ms / base.limit_ms
    assert one.figure.ratio.low < most**0.5
    assert (one.figure.kernel, one.tier.name, one.next.name) == ("triton-flash", "A tenth", "Half")
    assert one.next.factor == pytest.approx(most**0.5)
    assert one.missing_ms == pytest.approx(base.ms / one.figure.ratio.ratio - base.ms / most**0.5)
    assert not one.is_beyond
    Result.objects.update(limit_ms=None)
    (unknown,) = session_report(session).tiers(half)
    assert (unknown.tier, unknown.next) == (None, None)
    assert "no speed of light is known" in forms(owner, session)["session_md"]


def test_where_no_kernel_is_faster_the_baseline_is_the_best(owner, ran, session):
    Run.objects.filter(pk=ran(count=1).pk).update(contended=True)
    (one,) = session_report(session).tiers(TierScale(name="mine", body=[["Good", "B", 2.0]]))
    assert (one.figure.kernel, one.tier, one.next.name) == ("sdpa", None, "Good")
    assert one.missing_ms == pytest.approx(one.figure.ms / 2)


def test_the_report_has_the_newest_version_of_a_scale(owner, ran, session):
    ran(count=1)
    TierScale.objects.first().next_version("The way", [["A third", "C", 0.33]], None)
    for name, text in forms(owner, session).items():
        assert name == "session" or ("A third" in text and "A quarter" not in text), name


def test_the_pages_take_few_queries(owner, ran, session, sample, django_assert_max_num_queries):
    for factor in (1.0, 1.2, 1.3, 1.4):
        ran(edit={"triton-flash": factor})
    for one in (session, sample):
        for name in ("session", "session_report", "session_md", "session_html"):
            with django_assert_max_num_queries(12):
                assert owner.get(reverse(name, args=[one.pk])).status_code == 200


def test_an_empty_session_has_a_report(owner):
    empty = Session.objects.create(title="Nothing")
    for name, text in forms(owner, empty).items():
        assert "Nothing" in text, name
    assert owner.get("/sessions/999/report/").status_code == 404


# --- the file that stands alone ---------------------------------------------------------------------------------------


def test_the_file_loads_nothing_and_runs_nothing(owner, ran, session):
    ran(count=8)
    text = forms(owner, session)["session_html"]
    assert "default-src &#x27;none&#x27;" in text and "<script" not in text and "<link" not in text
    assert not re.findall(r'(?:src|srcset)="(?!data:image/svg)', text)
    assert "url(" not in text and "@import" not in text
    pictures = re.findall('data:image/svg[+]xml;base64,([^"]+)', text)
    assert len(pictures) == 4, "two charts, light and dark"
    drawn = {re.sub(r"clip\d+", "clip", base64.b64decode(one).decode()) for one in pictures}
    addresses = [f"{name}.svg?theme={theme}" for name in ("factors", "scaling") for theme in THEMES]
    shown = [owner.get(f"/sessions/{session.pk}/charts/{address}").content.decode() for address in addresses]
    assert {re.sub(r"clip\d+", "clip", one) for one in shown} == drawn
    assert "@media print" in text and "size: A4" in text
    assert all(link.startswith("http://testserver/") for link in re.findall(r'href="([^"#]+)"', text))


# --- texts of people --------------------------------------------------------------------------------------------------


def test_no_text_of_a_person_runs_script_in_any_form(owner, ran, session):
    run = ran(count=1)
    Run.objects.filter(pk=run.pk).update(title=ATTACK, note=ATTACK, withdrawn_at=timezone.now(), withdrawn_why=ATTACK)
    other = ran(count=1)
    Result.objects.filter(measurement__run=other, kernel__name="eager").update(
        status="incorrect", why=ATTACK, speedup=None
    )
    link = f"{ATTACK} [click](javascript:alert(3)) [x]: data:text/html,x"
    Note.objects.create(session=session, phase=ATTACK, text=link)
    row = {"title": ATTACK, "text": link}
    texts = dict.fromkeys(("objective", "decision", "next_actions", "learnings", "deliverables"), link)
    Session.objects.filter(pk=session.pk).update(
        title=ATTACK, **texts, blockers=[row | {"state": ATTACK}], options=[row], criteria=[ROW | row | {"workloads": ATTACK}],
        phases=[row | {"number": 0, "state": "done", "after": []}],
    )  # fmt: skip
    for name, text in forms(owner, session).items():
        if name == "session_md":
            assert text.count("<script") == text.count("\\<script") > 5
            assert text.count("<img") == text.count("\\<img") and "](javascript:" not in text
        else:
            assert "<script>alert" not in text and "<img src=x" not in text, name
            assert not re.search(r'(href|src)\s*=\s*"?\s*(javascript|data:text)', text), name
    owner.get(reverse("edit_session", args=[session.pk]))
    page = owner.get(reverse("edit_session", args=[session.pk])).content.decode()
    assert "<script>alert" not in page


def test_claims_of_an_imported_file_are_text(owner, session):
    rows = [{"kernel": ATTACK, "batch": 1, "heads": 8, "seq_len": 512, "head_dim": 64, "p50_ms": 2.0, "baseline": "sdpa"},
            {"kernel": "sdpa", "batch": 1, "heads": 8, "seq_len": 512, "head_dim": 64, "p50_ms": 1.0}]  # fmt: skip
    outcome = importer.import_claims(io.StringIO(json.dumps(rows)), ATTACK, about="attention fp16 on NVIDIA L4")
    outcome.imported.session = session
    outcome.imported.save()
    for name, text in forms(owner, session).items():
        assert "alert(1)" in text, name
        if name != "session_md":
            assert "<script>alert" not in text and "<img src=x" not in text, name
        else:
            assert text.count("<script") == text.count("\\<script")
    for theme in ("light", "dark"):
        svg = owner.get(reverse("session_chart_svg", args=[session.pk, "factors"]) + f"?theme={theme}").content.decode()
        assert "<script" not in svg and "<img" not in svg


def test_markdown_of_people():
    html = rendered("# Title\n**bold** `code` [a](https://a.example) ![i](http://x/y.png)\n\n- one\n- two")
    assert "<h3>Title</h3>" in html and "<strong>bold</strong>" in html and "<li>one</li>" in html
    assert 'href="https://a.example"' in html and "<img" not in html
    assert as_typed("Baseline data: 5 ms <b> & c") == "Baseline data: 5 ms \\<b> \\& c"
    assert as_typed("\\<script>") == "\\<script>", "another backslash would escape the backslash, and not the sign"
    assert as_typed("\\\\<script>") == "\\\\\\<script>"
    for text in ("[x](javascript:alert(1))", "[x](javascript\\:a)", "[x](< data:a>)",
                 "[x](JAVASCRIPT:a)", "[x](vbscript:a)", "[x](data:text/html,a)",
                 "<a href=javascript:a>x</a>",
                 "[x](&#106;avascript:a)", "<svg onload=a>", "[x](java\tscript:a)"):  # fmt: skip
        assert "<a " not in rendered(text) and "<svg" not in rendered(text), text
        assert not re.search(r"\]\(\s*<?\s*(javascript|vbscript|data)\\?:", as_typed(text), re.IGNORECASE), text


def test_a_run_that_a_note_names_is_a_link_struck_through_when_it_is_withdrawn():
    html = rendered("run 7, run 8, run 9 and `run 7`", {7: False, 8: True}, "http://site")
    assert '<a href="http://site/runs/7/" rel="noopener noreferrer nofollow">run 7</a>' in html
    assert '<s><a href="http://site/runs/8/"' in html
    assert html.count("<a ") == 2, "run 9 is not of this session, and code stays code"


# --- by link ----------------------------------------------------------------------------------------------------------


def test_a_link_opens_the_report_and_the_runs_of_the_session_and_nothing_else(owner, stranger, ran, session, measured):
    run, other = ran(count=1), measured(count=1)
    page = owner.post(reverse("share_session", args=[session.pk]), follow=True).content.decode()
    link = re.search(r'value="http://testserver([^"]+)" data-link', page)[1]
    assert owner.post(reverse("share_session", args=[session.pk])).status_code == 302
    assert Share.objects.count() == 1
    answer = stranger.get(link)
    assert (answer.status_code, answer.headers["X-Robots-Tag"]) == (200, "noindex")
    shown = answer.content.decode()
    assert 'method="post"' not in shown
    for name in ("session_md", "session_html"):
        assert stranger.get(reverse(name, args=[session.pk])).status_code == 200
    assert stranger.get(reverse("session_chart_svg", args=[session.pk, "factors"])).status_code == 200
    links = set(re.findall(r'href="(/[^"#?]*)', shown)) - {"/", reverse("login")}
    for address in (one for one in links if not one.startswith("/static/")):
        assert stranger.get(address).status_code == 200, address
    for address in (session.get_absolute_url(), other.get_absolute_url(), reverse("session_json", args=[session.pk]),
                    reverse("edit_session", args=[session.pk]), reverse("status"), reverse("runs")):  # fmt: skip
        assert stranger.get(address).status_code == 302, address
    Run.objects.filter(pk=run.pk).update(session=None)
    assert stranger.get(run.get_absolute_url()).status_code == 302, "a run that left the session"
    owner.post(reverse("unshare_session", args=[session.pk]))
    assert stranger.get(link).status_code == 410


def test_the_link_of_a_session_opens_no_status_page(owner, stranger, session):
    owner.post(reverse("share_session", args=[session.pk]))
    token = Share.objects.get().token
    assert stranger.get(reverse("wall", args=[token])).status_code == 404


# --- a withdrawn run --------------------------------------------------------------------------------------------------


def test_a_withdrawn_run_is_struck_through_and_the_one_before_counts_again(owner, ran, session):
    ran(count=1)
    last = ran(count=1, edit={"triton-flash": 1.5})
    Note.objects.create(session=session, text=f"Best so far: run {last.pk}.")
    before = session_report(session)
    assert before.headline.strong == "triton-flash is faster than before"
    withdrawal.withdraw(last, "The clock was locked.", owner.user)
    after = session_report(session)
    assert not any(row.verdict == "FASTER" for row in after.table)
    assert {one.run for one in after.measured} == {last.pk - 1}
    assert {one.run for one in after.figures if one.is_withdrawn} == {last.pk}
    found = forms(owner, session)
    assert "Withdrawn: The clock was locked." in found["session_report"]
    for name in ("session", "session_report", "session_html"):
        assert re.search(rf'<s><a href="[^"]*{last.get_absolute_url()}"[^>]*>run {last.pk}</a></s>', found[name]), name
    assert f"~~[run {last.pk}]" in found["session_md"]


def test_every_figure_of_a_withdrawn_run_is_struck_through(owner, ran, session):
    run = ran(count=1)
    withdrawal.withdraw(run, "The clock was locked.", owner.user)
    base = next(one for one in session_report(session).figures if one.is_baseline)
    found = forms(owner, session)
    grid = found["session_report"].split("results told factors")[1]
    assert f'<td class="struck">{timespan(base.ms)}</td>' in grid
    rows = [line for line in found["session_md"].split("\n") if f"run {run.pk}]" in line and line.startswith("|")]
    assert rows
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert all(cell.startswith("~~") or not re.search(r"\d", cell) for cell in cells), row
