from django.urls import path, register_converter
from django.urls.converters import IntConverter

from runs.views import (
    compare,
    gpus,
    judge,
    kernels,
    new,
    overview,
    result,
    run,
    runs,
    sessions,
    share,
    status,
    submissions,
    tiers,
)

KERNEL = "kernels/<slug:operation>/<path:name>"
WORKLOAD = f"{KERNEL}/on/<slug:key>"


class Id(IntConverter):
    """A row's number: no more digits than a column holds."""

    regex = "[0-9]{1,18}"


register_converter(Id, "id")

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("runs/", runs.runs, name="runs"),
    path("runs.csv", runs.runs_csv, name="runs_csv"),
    path("runs.json", runs.runs_json, name="runs_json"),
    path("runs/new/", new.new_run, name="new_run"),
    path("runs/new/estimate/", new.estimate, name="estimate"),
    path("runs/<id:pk>/", run.run, name="run"),
    path("runs/<id:pk>/live/", run.live, name="run_live"),
    path("runs/<id:pk>/cancel/", run.cancel, name="cancel_run"),
    path("runs/<id:pk>/compare/", compare.compare_with, name="compare_with"),
    path("runs/<id:pk>/share/", share.share, name="share_run"),
    path("runs/<id:pk>/unshare/", share.unshare, name="unshare_run"),
    path("sessions/", sessions.sessions, name="sessions"),
    path("sessions/new/", sessions.edit, name="new_session"),
    path("sessions/<id:pk>/", sessions.session, name="session"),
    path("sessions/<id:pk>.json", sessions.session_json, name="session_json"),
    path("sessions/<id:pk>.md", sessions.session_md, name="session_md"),
    path("sessions/<id:pk>/edit/", sessions.edit, name="edit_session"),
    path("sessions/<id:pk>/end/", sessions.end, name="end_session"),
    path("sessions/<id:pk>/runs/", sessions.add_run, name="add_to_session"),
    path("sessions/<id:pk>/runs/<id:run>/remove/", sessions.remove_run, name="remove_from_session"),
    path("status/", status.status, name="status"),
    path("status/share/", share.share, name="share_status"),
    path("status/unshare/", share.unshare, name="unshare_status"),
    path("compare/<id:before>...<id:after>/", compare.compare, name="compare"),
    path("compare/<id:before>...<id:after>.csv", compare.compare_csv, name="compare_csv"),
    path("compare/<id:before>...<id:after>.json", compare.compare_json, name="compare_json"),
    path("compare/<id:before>...<id:after>.md", compare.compare_md, name="compare_md"),
    path("runs/<id:pk>.csv", run.table_csv, name="run_csv"),
    path("runs/<id:pk>.json", run.table_json, name="run_json"),
    path("runs/<id:pk>.jsonl", run.table_jsonl, name="run_jsonl"),
    path("runs/<id:pk>.md", run.table_md, name="run_md"),
    path("runs/<id:pk>.yaml", run.config_yaml, name="run_yaml"),
    path("runs/<id:pk>/charts/<slug:name>.json", run.chart_json, name="chart_json"),
    path("runs/<id:pk>/charts/<slug:name>.svg", run.chart_svg, name="chart_svg"),
    path("runs/<id:pk>/results/<id:result_pk>/", result.result, name="result"),
    path("runs/<id:pk>/results/<id:result_pk>.csv", result.samples_csv, name="result_csv"),
    path("runs/<id:pk>/results/<id:result_pk>.json", result.result_json, name="result_json"),
    path("runs/<id:pk>/results/<id:result_pk>/charts/<slug:name>.json", result.chart_json, name="result_chart_json"),
    path("runs/<id:pk>/results/<id:result_pk>/charts/<slug:name>.svg", result.chart_svg, name="result_chart_svg"),
    path("kernels/", kernels.kernels, name="kernels"),
    path("kernels.csv", kernels.kernels_csv, name="kernels_csv"),
    path("kernels.json", kernels.kernels_json, name="kernels_json"),
    path(f"{WORKLOAD}/", kernels.workload, name="kernel_workload"),
    path(f"{WORKLOAD}.csv", kernels.history_csv, name="kernel_workload_csv"),
    path(f"{WORKLOAD}.json", kernels.history_json, name="kernel_workload_json"),
    path(f"{KERNEL}/", kernels.kernel, name="kernel"),
    path(f"{KERNEL}.csv", kernels.history_csv, name="kernel_csv"),
    path(f"{KERNEL}.json", kernels.history_json, name="kernel_json"),
    path("submit/", submissions.submit, name="submit"),
    path("submissions/", submissions.submissions, name="submissions"),
    path("submissions/<slug:version>/", submissions.submission, name="submission"),
    path("submissions/<slug:version>/measure/", submissions.measure, name="measure_submission"),
    path("tiers/", tiers.tiers, name="tiers"),
    path("tiers.csv", tiers.tiers_csv, name="tiers_csv"),
    path("tiers.json", tiers.tiers_json, name="tiers_json"),
    path("tiers/scales/new/", tiers.scale, name="new_tier_scale"),
    path("tiers/scales/<id:pk>/", tiers.scale, name="tier_scale"),
    path("tiers/scales/<id:pk>/delete/", tiers.delete_scale, name="delete_tier_scale"),
    path("tiers/<slug:key>/<slug:mode>/", tiers.workload, name="tier_workload"),
    path("tiers/<slug:key>/<slug:mode>.csv", tiers.workload_csv, name="tier_workload_csv"),
    path("tiers/<slug:key>/<slug:mode>.json", tiers.workload_json, name="tier_workload_json"),
    path("judge/", judge.judge, name="judge"),
    path("judge.json", judge.judge_json, name="judge_json"),
    path("gpus/", gpus.gpus, name="gpus"),
    path("gpus.csv", gpus.gpus_csv, name="gpus_csv"),
    path("gpus.json", gpus.gpus_json, name="gpus_json"),
    path("gpus/<id:pk>/", gpus.gpu, name="gpu"),
    path("gpus/<id:pk>.json", gpus.gpu_json, name="gpu_json"),
    path("gpus/<id:pk>/recalibrate/", gpus.recalibrate, name="recalibrate"),
]
