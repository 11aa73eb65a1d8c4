"""The network between nodes that a published row describes in words, and its rate."""

from __future__ import annotations

import re

from napkin.evidence.rows.fields import known_accelerator
from napkin.evidence.rows.row import RowFields

GBIT = 1e9 / 8
"""byte/s of a Gbit/s."""
RATE = re.compile(
    r"(?:(?P<cards>\d+) ?[x×*] ?(?:[A-Za-z].*?[ (])??)?(?P<rate>\d+(?:\.\d+)?) ?(?P<scale>[GTgt])"
    r"(?P<unit>bits?/s|bit|b/[Ss](?:ec)?|bps|bE|igE|b|B/s|Bps|)(?!\w)"
)
"""Network cards of a node and the rate of each, in bits or bytes: `8x 200 Gbit/s`, `4 * 100Gb`, `1.6 Tbps`, `400G`,
`8x ConnectX-7 IB NDR 400Gb/s`."""
NETWORK_PARTS = re.compile(r"[,;+]| and ")
"""What separates the networks that one description names."""
OTHER_LINKS = re.compile(r"nvlink|nvswitch|pci|xgmi|infinity fabric|within|intra|storage|management", re.IGNORECASE)
"""Words of what connects the GPUs of one node, or a node with anything but the others."""
PER_GPU = re.compile(r"\b(?:per|each|a|/) ?(?:gpu|accelerator|device|chip)\b", re.IGNORECASE)
PORTS = re.compile(r"\b(?:EDR|HDR|NDR|XDR)\d*\b")
"""Generations of InfiniBand, which name the rate of a port: of one card, where no number of cards is stated."""
PER_NODE = re.compile(
    r"(?<!between )(?<!across )(?<!inter[- ])\bnodes?\b|\bserver\b|\btotal\b|\baggregate\b", re.IGNORECASE
)
"""Words by which a rate is a node's; `between nodes` says only where the network is."""
NVLINK = re.compile(r"nvlink|nv ?bridge", re.IGNORECASE)
NO_NVLINK = re.compile(r"\b(?:no|not|without|lacks?)\b[^,;()]*(?:nvlink|nv ?bridge)|pcie only", re.IGNORECASE)
ETHERNET = re.compile(r"(?<!over converged )\bethernet\b", re.IGNORECASE)
TCPX_CARDS = 4 * 200
"""Gbit/s of a node of Google's A3 machines, whose four network cards TCPX drives."""


def network_of(row: RowFields) -> dict[str, float | str]:
    """Return the network between a row's nodes: its rate, and its kind if that is not RDMA. Ethernet of no stated rate
    says too little of it. If the accelerators have network ports themselves, the row's network cards are the host's."""
    link, node = row.text("hardware.interconnect"), row.count("hardware.per_node") or 8
    if not link or _has_ports(row):
        return {}
    found: dict[str, float | str] = {}
    rate = network(link, node)
    if rate is not None:
        found["network"] = rate
    if "omni-path" in link.lower():
        found["fabric"] = "omnipath"
    elif rate is None and ETHERNET.search(link) and (row.count("hardware.count") or 1) > node:
        found["fabric"] = "ethernet"
    return found


def states_bridge(row: RowFields) -> bool:
    """Return whether a row says that NVLink joins its GPUs, which on cards for slots a bridge does."""
    return bool(NVLINK.search(row.text("hardware.interconnect"))) and not states_slots(row)


def states_slots(row: RowFields) -> bool:
    """Return whether a row says that no NVLink joins its GPUs, which then reach each other by their slots."""
    return bool(NO_NVLINK.search(row.text("hardware.interconnect")))


def _has_ports(row: RowFields) -> bool:
    """Return whether a row's accelerator is known to have network ports itself."""
    found = known_accelerator(row)
    return found is not None and found.integrated_ports


def network(words: str, node: int) -> float | None:
    """Return byte/s per GPU of `8x 200 Gbit/s … per node`, `4 * 100Gb RoCE`, `400 Gbit/s RDMA per GPU`, `1.6 Tbps` or
    `TCPX`; of several networks between nodes, of the fastest. None where a port's generation is named without a number
    of cards (`InfiniBand NDR 400G`): the machine's usual ones."""
    rates = []
    for part in NETWORK_PARTS.split(words):
        found = None if OTHER_LINKS.search(part) else RATE.search(part)
        if found and not found["cards"] and PORTS.search(part) and not (PER_GPU.search(part) or PER_NODE.search(part)):
            continue  # of one of the node's cards
        if found:
            thousands = 1000 if found["scale"] in "Tt" else 1
            each = float(found["rate"]) * thousands * (1e9 if found["unit"].startswith("B") else GBIT)
            rates.append(float(found["cards"] or 1) * each / (1 if PER_GPU.search(part) else node))
    if not rates and "TCPX" in words:
        return TCPX_CARDS * GBIT / node
    return max(rates, default=None)
