"""How sure one can be of a measured share."""

from math import sqrt


def wilson(share: float, num: int) -> tuple[float, float]:
    """The 95 % score interval of a share of `num` trials; honest at 0 and 1, where +- is not."""
    z = 1.959964
    centre = share + z * z / (2 * num)
    spread = z * sqrt(share * (1 - share) / num + z * z / (4 * num * num))
    scale = 1 + z * z / num
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
