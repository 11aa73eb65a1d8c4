"""Measured power draw of accelerators in training, and the carbon intensity of regional grids."""

from __future__ import annotations

from napkin.errors import NapkinError, Refused, did_you_mean
from napkin.record import record
from napkin.term import SEEN, Term, leaf


@record
class MeasuredDraw:
    """Watts of one accelerator with its share of the host, measured in a training run."""

    watts: float
    source: str


DRAWN = {
    "h100-sxm-80gb": MeasuredDraw(
        856.1, "64 nodes of 8, GPT-3 175B: MLPerf Training v4.0, Supermicro, power log; AC side, without switches"
    ),
    "tpu-v4": MeasuredDraw(378.5, "6,144 chips, PaLM 540B: arXiv:2204.02311, appendix; measured system power"),
}
"""Accelerator → power draw in a large training run, including the host's share."""
GOOGLE = "Google Cloud, region-carbon-info, data/yearly, 2024; location-based, CO2 equivalent"
GRIDS = {
    "asia-east1": (0.43929, "Taiwan"),
    "asia-northeast1": (0.45285, "Tokyo"),
    "asia-northeast3": (0.35657, "Seoul"),
    "asia-south1": (0.67876, "Mumbai"),
    "asia-southeast1": (0.36685, "Singapore"),
    "australia-southeast1": (0.4975, "Sydney"),
    "europe-central2": (0.64288, "Warsaw"),
    "europe-north1": (0.03932, "Finland"),
    "europe-west1": (0.10337, "Belgium"),
    "europe-west3": (0.27582, "Frankfurt"),
    "europe-west4": (0.20881, "Eemshaven"),
    "europe-west6": (0.01505, "Zurich"),
    "europe-west9": (0.0163, "Paris"),
    "northamerica-northeast1": (0.00548, "Montreal"),
    "southamerica-east1": (0.06732, "Sao Paulo"),
    "us-central1": (0.41272, "Iowa"),
    "us-east1": (0.57577, "South Carolina"),
    "us-east4": (0.32305, "Northern Virginia"),
    "us-east5": (0.32305, "Columbus"),
    "us-south1": (0.30295, "Dallas"),
    "us-west1": (0.07923, "Oregon"),
    "us-west2": (0.16928, "Los Angeles"),
}
"""Region → kg of CO2 equivalent per kWh, and where it is."""


def drawn(slug: str, name: str) -> Term:
    """Return the measured draw of an accelerator. Refused (3): none is published."""
    found = DRAWN.get(slug)
    if found is None:
        raise Refused(f"--power measured: no draw of {name} in training is published", f"known: {', '.join(DRAWN)}")
    return leaf("power", found.watts, "watt/GPU", SEEN, found.source)


def intensity(region: str) -> Term:
    """Return the carbon intensity of a region, by its name or its place. NapkinError (2): it is not known."""
    word = region.strip().lower().removeprefix("gcp:").replace(" ", "-")
    places = {place.lower().replace(" ", "-"): name for name, (_, place) in GRIDS.items()}
    name = places.get(word, word)
    if name not in GRIDS:
        hint = did_you_mean(word, (*GRIDS, *places)) or f"one of {', '.join(GRIDS)}"
        raise NapkinError(f"--region: no grid is called {region.strip()[:40]!r}", f"{hint}; or --carbon-intensity")
    value, place = GRIDS[name]
    return leaf("carbon_intensity", value, "kg/kWh", SEEN, f"{GOOGLE}: {name}, {place}")
