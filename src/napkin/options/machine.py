"""Options that say which accelerators are used, how fast they are, and what they cost."""

from __future__ import annotations

from napkin import units
from napkin.options.option import Option, choice

OPTIONS = (
    Option("hardware", units.words, "Accelerator, e.g. h100 (napkin hardware lists all)", metavar="NAME"),
    Option("hardware-file", units.words, "Your own accelerators, in addition to the built-in ones", metavar="FILE"),
    Option("profile", units.words, "Rates measured by napkin bench", metavar="FILE"),
    Option("dtype", units.words, "Number format, e.g. bf16", metavar="NAME", default="bf16, else fp16"),
    Option("peak-flops", units.compute_rate, "Dense peak FLOP/s of the dtype in use", "FLOP/s", "X"),
    Option("memory-size", units.memory, "Memory of one accelerator", "byte", "SIZE"),
    Option("host-memory", units.memory, "Host memory of one node", "byte", "SIZE"),
    Option("memory-bandwidth", units.bandwidth, "Memory bandwidth of one accelerator", "byte/s", "X"),
    Option("link-bandwidth", units.bandwidth, "Bandwidth of the link inside a node, one way", "byte/s", "X"),
    Option("network-bandwidth", units.bandwidth, "Network bandwidth per accelerator, one way", "byte/s", "X"),
    Option(
        "oversubscription",
        units.at_least_one,
        "Oversubscription of the network between nodes: 2 halves its bandwidth",
        metavar="X",
        default="1",
    ),
    Option("tdp", units.power_draw, "Power rating (TDP) of one accelerator", "watt", "X"),
    Option("link", units.words, "A link (pcie5, nvlink4, …) or its rate, e.g. 64GB/s", metavar="NAME"),
    Option("price", units.dollars, "USD per GPU-hour", "USD/GPU-hour", "USD"),
    Option(
        "power-overhead", units.at_least_one, "Factor on the TDP for host, fans and network", metavar="X", default="1.3"
    ),
    Option("pue", units.at_least_one, "Power usage effectiveness of the data center", metavar="X", default="1.1"),
    Option(
        "power",
        choice("tdp", "measured"),
        "Power per GPU: its TDP, or as measured in training",
        metavar="WHAT",
        default="tdp",
    ),
    Option("carbon-intensity", units.positive, "kg of CO2 per kWh", "kg/kWh", "X"),
    Option("region", units.words, "Cloud region, for its grid's CO2, e.g. europe-north1", metavar="NAME"),
    Option("accelerator", units.words, "One accelerator, e.g. h100", metavar="NAME", positional=True),
    Option("vendor", units.words, "Only accelerators of this vendor", metavar="NAME"),
    Option("from-profile", units.words, "Print an entry for --hardware-file from a profile", metavar="FILE"),
)

FIGURES = (
    *("peak-flops", "memory-size", "memory-bandwidth", "link-bandwidth", "network-bandwidth", "oversubscription"),
    "tdp",
)
"""Figures of the accelerator, given instead of the table's. They are parsed only if one is used, which keeps them
out of every start-up."""


def accelerators(text: str) -> str | list[str]:
    """Read one accelerator, a list of them, or `any` for all whose price is known."""
    words = [word.strip() for word in text.split(",")]
    if len(words) == 1 and words[0].lower() != "any":
        return words[0]
    if not all(words):
        raise units.Unreadable(f"{text[:60]!r} names nothing between two commas", "h100,a100")
    return [word.lower() if word.lower() == "any" else word for word in words]
