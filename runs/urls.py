from django.urls import path

from runs.views import compare, gpus, kernels, new, overview, result, run, runs

KERNEL = "kernels/<slug:operation>/<path:name>"
WORKLOAD = f"{KERNEL}/on/<slug:key>"

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
    path("runs/<int:pk>/compare/", compare.compare_with, name="compare_with"),
    path("compare/<int:before>...<int:after>/", compare.compare, name="compare"),
    path("compare/<int:before>...<int:after>.csv", compare.compare_csv, name="compare_csv"),
    path("compare/<int:before>...<int:after>.json", compare.compare_json, name="compare_json"),
    path("compare/<int:before>...<int:after>.md", compare.compare_md, name="compare_md"),
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
    path("kernels/", kernels.kernels, name="kernels"),
    path("kernels.csv", kernels.kernels_csv, name="kernels_csv"),
    path("kernels.json", kernels.kernels_json, name="kernels_json"),
    path(f"{WORKLOAD}/", kernels.workload, name="kernel_workload"),
    path(f"{WORKLOAD}.csv", kernels.history_csv, name="kernel_workload_csv"),
    path(f"{WORKLOAD}.json", kernels.history_json, name="kernel_workload_json"),
    path(f"{KERNEL}/", kernels.kernel, name="kernel"),
    path(f"{KERNEL}.csv", kernels.history_csv, name="kernel_csv"),
    path(f"{KERNEL}.json", kernels.history_json, name="kernel_json"),
    path("gpus/", gpus.gpus, name="gpus"),
    path("gpus.csv", gpus.gpus_csv, name="gpus_csv"),
    path("gpus.json", gpus.gpus_json, name="gpus_json"),
    path("gpus/<int:pk>/", gpus.gpu, name="gpu"),
    path("gpus/<int:pk>.json", gpus.gpu_json, name="gpu_json"),
    path("gpus/<int:pk>/recalibrate/", gpus.recalibrate, name="recalibrate"),
]
