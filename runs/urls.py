from django.urls import path

from runs.views import gpus, new, overview, result, run, runs

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("runs/", runs.runs, name="runs"),
    path("runs.csv", runs.runs_csv, name="runs_csv"),
    path("runs.json", runs.runs_json, name="runs_json"),
    path("runs/new/", new.new_run, name="new_run"),
    path("runs/new/estimate/", new.estimate, name="estimate"),
    path("runs/<int:pk>/", run.run, name="run"),
    path("runs/<int:pk>/live/", run.live, name="run_live"),
    path("runs/<int:pk>/cancel/", run.cancel, name="cancel_run"),
    path("runs/<int:pk>.csv", run.table_csv, name="run_csv"),
    path("runs/<int:pk>.json", run.table_json, name="run_json"),
    path("runs/<int:pk>.md", run.table_md, name="run_md"),
    path("runs/<int:pk>.yaml", run.config_yaml, name="run_yaml"),
    path("runs/<int:pk>/charts/<slug:name>.json", run.chart_json, name="chart_json"),
    path("runs/<int:pk>/charts/<slug:name>.svg", run.chart_svg, name="chart_svg"),
    path("runs/<int:pk>/results/<int:result_pk>/", result.result, name="result"),
    path("runs/<int:pk>/results/<int:result_pk>.csv", result.samples_csv, name="result_csv"),
    path("runs/<int:pk>/results/<int:result_pk>.json", result.result_json, name="result_json"),
    path("runs/<int:pk>/results/<int:result_pk>/charts/<slug:name>.json", result.chart_json, name="result_chart_json"),
    path("runs/<int:pk>/results/<int:result_pk>/charts/<slug:name>.svg", result.chart_svg, name="result_chart_svg"),
    path("gpus/", gpus.gpus, name="gpus"),
    path("gpus.csv", gpus.gpus_csv, name="gpus_csv"),
    path("gpus.json", gpus.gpus_json, name="gpus_json"),
    path("gpus/<int:pk>/", gpus.gpu, name="gpu"),
    path("gpus/<int:pk>.json", gpus.gpu_json, name="gpu_json"),
    path("gpus/<int:pk>/recalibrate/", gpus.recalibrate, name="recalibrate"),
]
