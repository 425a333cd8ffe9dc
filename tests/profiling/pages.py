"""Pages as ncu writes them, with figures of our own."""

import csv
import io

FIXED = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size")
UNITS = {
    "gpu__time_duration.sum": "ns",
    "dram__bytes_read.sum": "byte",
    "dram__bytes_write.sum": "byte",
    "launch__registers_per_thread": "register/thread",
    "launch__shared_mem_per_block_dynamic": "byte/block",
    "launch__shared_mem_per_block_static": "byte/block",
}
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
SOFTMAX = {
    "gpu__time_duration.sum": "200,000",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "76.5",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "n/a",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "24.70",
    "dram__bytes_read.sum": "134,000,000",
    "dram__bytes_write.sum": "116,000,000",
    "smsp__cycles_active.avg": "409,000.5",
    "smsp__cycles_elapsed.avg": "414,000",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "94.2",
    "sm__maximum_warps_per_active_cycle_pct": "100",
    "launch__registers_per_thread": "30",
    "launch__shared_mem_per_block_dynamic": "128",
    "launch__shared_mem_per_block_static": "0",
    "launch__waves_per_multiprocessor": "62.06",
    "launch__occupancy_limit_registers": "2",
    "launch__occupancy_limit_shared_mem": "7",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "4,000,000",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "2,000,000",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": "0",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": "0",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": "0",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": "16",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.max_rate": "32",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio": "0",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.max_rate": "32",
    "smsp__thread_inst_executed_per_inst_executed.ratio": "30.5",
    "smsp__sass_average_branch_targets_threads_uniform.pct": "96.25",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "1,000",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "400",
    STALL.format("long_scoreboard"): "6",
    STALL.format("barrier"): "2",
    STALL.format("selected"): "1",
    STALL.format("not_selected"): "1",
    "FBSP.TriageCompute.dramc__throughput.avg.pct_of_peak_sustained_elapsed": "",
    "derived_tempMetric4": "nan",
}
BEFORE = (
    "==WARNING== Note: Running with unmodified GPU clocks.\n==PROF== Connected to process 690 (/usr/bin/python3)\n\n"
)
AFTER = "==PROF== Disconnected from process 690\n"


def page(*kernels, units=UNITS):
    """The output of ncu of these kernels: (name, metrics)."""
    names = list(kernels[0][1]) if kernels else []
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([*FIXED, *names])
    writer.writerow([*[""] * len(FIXED), *(units.get(name, "%" if "pct" in name else "") for name in names)])
    for number, (name, metrics) in enumerate(kernels):
        fixed = [number, 690, "python3", "127.0.0.1", name, 1, 7, "(1024, 1, 1)", "(16384, 1, 1)"]
        writer.writerow([*fixed, *(metrics[one] for one in names)])
    return BEFORE + text.getvalue() + AFTER
