"""GPU models: datasheet peaks, maximum clocks, and the highest rates that anybody has measured on them, with sources.

All figures are dense. Some public tables give the sparse figure of the H100; they are not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kernels.dtypes import EVERY

VENDOR = ("NVIDIA", "GeForce", "Tesla")


@dataclass(frozen=True)
class Reached:
    """The highest rate that anybody has measured on a model, and where it is published."""

    rate: float
    """TFLOP/s of a unit, or GB/s of the memory."""
    source: str
    link: str = ""
    """Address of the source on this site, if it is there."""


@dataclass(frozen=True)
class Peak:
    """One GPU model.

    `flop_per_clock` and `reached` are by unit: "fp16" (16-bit tensor cores, sums in float32), "fp16_sums" (fp16 with
    sums in fp16: twice as fast on GeForce cards), "fp8" (with whatever sums are fastest; absent before Ada), "tf32", "fp32"
    (no tensor cores); `reached` also by "memory".
    """

    model: str
    names: tuple[str, ...]
    """The driver's names, without the vendor. Other forms (NVL, Laptop, MIG, GH200, ...) have other peaks."""
    datasheet: Mapping[str, float]
    """Unit -> TFLOP/s."""
    gb_per_s: float
    sm_count: int
    flop_per_clock: Mapping[str, int]
    """Unit -> FLOP per clock of one SM."""
    max_mhz: float
    """Maximum SM clock, where no device can be asked."""
    clock_source: str
    reached: Mapping[str, Reached] = field(default_factory=dict)

    def tflops(self, dtype: str) -> float:
        """The datasheet's figure: of the dtype's own unit, or of the first that the model has. float32 means float32: tf32
        is another dtype."""
        info = EVERY[dtype]
        return next(self.datasheet[unit] for unit in (info.peak, *info.ways) if unit in self.datasheet)

    def light(self, dtype: str) -> Light:
        """The speed of light of a dtype: its fastest way at the maximum clock. No right kernel is faster."""
        ways = [
            Light(unit, products, self.sm_count, self.flop_per_clock[unit], self.max_mhz)
            for unit, products in EVERY[dtype].ways.items()
            if unit in self.flop_per_clock
        ]
        return max(ways, key=lambda way: way.tflops)

    def reached_tflops(self, dtype: str) -> Reached | None:
        """The highest rate measured of a dtype. None if it is unknown for the unit that is its fastest way."""
        products = EVERY[dtype].ways
        if self.light(dtype).unit not in self.reached:
            return None
        rates = {unit: self.reached[unit].rate / products[unit] for unit in products if unit in self.reached}
        unit = max(rates, key=rates.__getitem__)
        over = f", / {products[unit]}" if products[unit] > 1 else ""
        return Reached(rates[unit], self.reached[unit].source + over, self.reached[unit].link)


@dataclass(frozen=True)
class Light:
    """The speed of light of a dtype, with its arithmetic."""

    unit: str
    products: int
    """Products of this unit that make one product of the dtype."""
    sm_count: int
    flop_per_clock: int
    mhz: float

    @property
    def tflops(self) -> float:
        return self.sm_count * self.flop_per_clock * self.mhz / self.products / 1e6

    @property
    def arithmetic(self) -> str:
        """ "132 SMs x 4096 FLOP/clk x 1.98 GHz" """
        split = f" / {self.products} products of {self.unit}" if self.products > 1 else ""
        sums = " with sums in fp16" if self.unit == "fp16_sums" else ""
        return f"{self.sm_count} SMs x {self.flop_per_clock} FLOP/clk{sums} x {self.mhz / 1e3:g} GHz{split}"


def _units(fp16: int, fp32: int, fp16_sums: int = 0, fp8: int = 0) -> dict[str, int]:
    units = {"fp16": fp16, "tf32": fp16 // 2, "fp32": fp32, "fp16_sums": fp16_sums, "fp8": fp8}
    return {unit: rate for unit, rate in units.items() if rate}


def _sheet(fp16: float, tf32: float, fp32: float, fp8: float = 0) -> dict[str, float]:
    return {"fp16": fp16, "tf32": tf32, "fp32": fp32} | ({"fp8": fp8} if fp8 else {})


def _by_torch(issue: int, **rates: float) -> dict[str, Reached]:
    """Matrix products of PyTorch, 1024 to 10240 wide."""
    source = f"torch.matmul, github.com/zzc0721/torch-performance-test-data/issues/{issue}"
    return {unit: Reached(rate, source) for unit, rate in rates.items()}


_HOPPER = _units(4096, 256, fp8=8192)
_H200_GEMM = "triton-gemm 8192 x 8192 x 8192, docs/measurements/gemm-h200-2026-11-22.json"
_H200_READ = "device read, docs/measurements/gluon-flash-bf16-h200-2026-11-22.json"
_MAMF = "matrix products of many shapes, github.com/stas00/ml-engineering, table of MAMF"
_AWS = "its application clock in github.com/awslabs/amazon-eks-ami"

PEAKS = (
    Peak(
        "L4", ("L4",), _sheet(121, 60, 30.3, 242), 300, 58, _units(1024, 256, fp8=2048), 2040, "its product brief",
        {"fp16": Reached(91.4, "matrix products of many shapes, github.com/mag-/gpu_benchmark")}
        | _by_torch(120, tf32=31.9, fp32=15.4),
    ),
    Peak(
        "A100 SXM 80GB", ("A100 SXM4 80GB", "A100 SXM 80GB"), _sheet(312, 156, 19.5), 2039, 108, _units(2048, 128),
        1410, _AWS, {"fp16": Reached(271.2, _MAMF)},
    ),
    Peak(
        "H100 PCIe", ("H100 PCIe",), _sheet(756, 378, 51, 1513), 2000, 114, _HOPPER, 1755, "its product brief",
        _by_torch(95, fp16=495.9, tf32=240.4, fp32=37.0),
    ),
    Peak(
        "H100 SXM", ("H100 80GB HBM3",), _sheet(989.4, 495, 67, 1979), 3350, 132, _HOPPER, 1980, _AWS,
        _by_torch(79, fp16=797.5, tf32=402.2, fp32=51.9),
    ),
    Peak(
        "H200 SXM", ("H200",), _sheet(989.4, 495, 67, 1979), 4800, 132, _HOPPER, 1980, _AWS + "/pull/1985",
        {"fp16": Reached(806.8, _H200_GEMM), "memory": Reached(4359, _H200_READ)},
    ),
    Peak(
        "B200", ("B200",), _sheet(2250, 1125, 75, 4500), 8000, 148, _units(8192, 256, fp8=16384), 1965,
        "techpowerup.com/gpu-specs", {"fp16": Reached(1745, _MAMF)},
    ),
    Peak(
        "RTX 4090", ("RTX 4090",), _sheet(165.2, 82.6, 82.6, 660.6), 1008, 128, _units(512, 256, 1024, 2048), 3165,
        "the highest that drivers report for a card of this model, github.com/horizon-research/SnapPix (3105 is usual)",
        _by_torch(78, fp16=168.4, tf32=85.7)
        | {"fp32": Reached(90.3, "multiply-adds, github.com/krrishnarraj/clpeak/issues/108, overclocked")},
    ),
    Peak(
        "RTX 5090", ("RTX 5090",), _sheet(209.5, 104.8, 104.8, 838), 1792, 170, _units(512, 256, 1024, 2048), 3135,
        "the highest that drivers report for a card of this model (3090 is usual)",
        {
            unit: Reached(rate, "cuBLASLt, github.com/xzwgit/gpu-flops-bench")
            for unit, rate in {"fp16": 254.2, "tf32": 125.8, "fp32": 83.2}.items()
        },
    ),
)  # fmt: skip


def peak_of(device_name: str, max_sm_mhz: float | None = None) -> Peak | None:
    """The model of a device by its name; None if unknown: then no share of a limit is shown.

    max_sm_mhz: the maximum SM clock that NVML reports for the device; it replaces that of the table.
    """
    words = device_name.replace("-", " ").split()
    name = " ".join(word for word in words if word not in VENDOR)
    found = next((peak for peak in PEAKS if name in peak.names or name == peak.model), None)
    if found is None or not max_sm_mhz:
        return found
    return replace(found, max_mhz=max_sm_mhz, clock_source="its driver")
