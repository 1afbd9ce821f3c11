"""Ours beside the published figure: is the difference more than chance?

A figure would be another one next time for two reasons: other examples, and another training.
"""

from collections.abc import Sequence
from math import hypot, sqrt
from statistics import mean, stdev

from deepen.config import Record


class Estimate(Record):
    """A figure, and the two reasons why it would be another one next time."""

    value: float
    sampling: float = 0.0
    """Standard error from the number of examples, which are the same for every seed."""
    spread: float | None = None
    """Standard deviation over trainings with other seeds; None if there is only one."""
    seeds: int = 1


def sampling_error(share: float, num: int) -> float:
    """Of a share of `num` trials; two imagined successes and failures keep 0 and 1 from looking exact."""
    centre = (share * num + 2) / (num + 4)
    return sqrt(centre * (1 - centre) / (num + 4))


def of_share(share: float, num: int) -> Estimate:
    """One model's share of `num` trials."""
    return Estimate(value=share, sampling=sampling_error(share, num))


def of_seeds(values: Sequence[float], sampling: float = 0.0) -> Estimate:
    """The mean over seeds; `sampling` is the error of a single one's figure."""
    spread = stdev(values) if len(values) > 1 else None
    return Estimate(value=mean(values), sampling=sampling, spread=spread, seeds=len(values))


# 97.5 % quantiles of Student's distribution, by degrees of freedom; 0: no seed but one on either side.
STUDENT = (1.96, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


class Compared(Record):
    """One figure of ours beside the published one."""

    what: str
    ours: Estimate
    published: Estimate

    @property
    def difference(self) -> float:
        return self.ours.value - self.published.value

    @property
    def noise(self) -> float:
        """Two such figures differ by less than this about 19 times out of 20, if nothing else differs.

        A side with one seed is taken to vary as the other one does. 0: nothing here is random.
        """
        both = (self.ours, self.published)
        known = [one for one in both if one.spread is not None]
        borrowed = max((one.spread or 0.0 for one in known), default=0.0)
        trained = sum((borrowed if one.spread is None else one.spread) ** 2 / one.seeds for one in both)
        student = STUDENT[min(sum(one.seeds - 1 for one in known), len(STUDENT) - 1)]
        return hypot(student * sqrt(trained), 1.96 * hypot(*(one.sampling for one in both)))

    @property
    def is_noise(self) -> bool:
        return abs(self.difference) <= self.noise + 1e-9
