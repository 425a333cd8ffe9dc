from django.urls import path

from runs.views import new, overview, run, runs

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
    path("runs/<int:pk>/results/<int:result_pk>/", run.result, name="result"),
]
