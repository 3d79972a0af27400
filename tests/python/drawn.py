"""Are numbers drawn from a distribution? Seeds are fixed, so that a test either always holds or never does."""

import numpy as np
from scipy import stats

LEAST_P = 1e-3


def follows(numbers, distribution):
    """Kolmogorov and Smirnov's test against a distribution function, or a frozen distribution of SciPy."""
    numbers = np.asarray(numbers, np.float64).ravel()
    return numbers.size >= 1000 and stats.kstest(numbers, getattr(distribution, "cdf", distribution)).pvalue > LEAST_P


def counts_follow(numbers, probability, kinds):
    """Pearson's test of whole numbers: ``probability`` of each of the kinds; what is rarer than 10 counts as one kind."""
    numbers = np.asarray(numbers).ravel()
    wanted = np.array([probability(kind) for kind in kinds]) * numbers.size
    found = np.array([(numbers == kind).sum() for kind in kinds])
    often = wanted >= 10
    wanted = np.append(wanted[often], numbers.size - wanted[often].sum())
    found = np.append(found[often], numbers.size - found[often].sum())
    if wanted[-1] < 1e-6 * numbers.size:  # nothing else may come
        return found[-1] == 0 and stats.chisquare(found[:-1], wanted[:-1] * (found[:-1].sum() / wanted[:-1].sum())).pvalue > LEAST_P
    return stats.chisquare(found, wanted).pvalue > LEAST_P
