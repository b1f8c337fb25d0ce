"""The description of a trained model: what it saw, how wide its intervals are, what it looks at."""

from __future__ import annotations

from autofuse.learning.model import ProfitabilityModel


def facts(model: ProfitabilityModel) -> dict[str, object]:
    """What the model was trained on, its sizes, and the factors of its intervals."""
    return {
        **model.about,
        "families": list(model.families),
        "time_features": len(model.time.names),
        "gain_features": len(model.gain.names),
        "time_trees": len(model.time.mean.roots),
        "gain_trees": len(model.gain.mean.roots),
        "time_factor": model.time.factor,
        "gain_factor": model.gain.factor,
    }


def importances(model: ProfitabilityModel, part: str) -> dict[str, float]:
    """Share that each feature has in a part ("time", "gain") of the model, the largest first."""
    learned = model.time if part == "time" else model.gain
    pairs = zip(learned.names, learned.importances, strict=True)
    return {name: float(share) for name, share in sorted(pairs, key=lambda pair: -pair[1])}
