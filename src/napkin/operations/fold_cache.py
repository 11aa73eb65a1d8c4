"""Cache for folds over a model's operations, which a search calls repeatedly."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from napkin.operations.model import Model

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec, TypeVar

    Result = TypeVar("Result")
    Rest = ParamSpec("Rest")

MODELS, RESULTS = 4, 4096
"""Number of cached models, and of results per model."""


def remembered(fold: Callable[Concatenate[Model, Rest], Result]) -> Callable[Concatenate[Model, Rest], Result]:
    """Return a function that caches the results of `fold` by model object, which never changes, and positional
    arguments. Comparing models by value would take as long as most folds."""
    known: dict[int, tuple[Model, dict[Hashable, Result]]] = {}

    def again(model: Model, /, *rest: Rest.args, **more: Rest.kwargs) -> Result:
        found = known.get(id(model))
        if found is None or found[0] is not model:
            if len(known) >= MODELS:
                known.clear()
            found = known[id(model)] = (model, {})
        results, key = found[1], (rest, tuple(more.items()))
        if key not in results:
            if len(results) >= RESULTS:
                results.clear()
            results[key] = fold(model, *rest, **more)
        return results[key]

    again.__doc__ = fold.__doc__
    return again
