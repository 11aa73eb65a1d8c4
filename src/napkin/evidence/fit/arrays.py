"""Types of numpy arrays, for annotations only: nothing here loads numpy."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    Indices = NDArray[np.int_]
