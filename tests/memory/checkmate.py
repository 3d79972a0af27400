"""The cheapest plan of recomputation by integer programming, solved by HiGHS.

Jain et al. 2020, "Checkmate: breaking the memory wall with optimal tensor rematerialization", equations 1 to 8: stage t
runs step t for the first time, behind whatever it runs again, each step at most once a stage and in their order. Here
a step may write several values, one of which may take an operand's place, and needs scratch memory.
"""

import numpy as np
from remat_problems import read_after_overwriting
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix


class Model:
    """Rows of lower <= sum of coefficient * variable <= upper."""

    def __init__(self):
        self.upper_bounds, self.is_integer, self.cost = [], [], []
        self.entries, self.row_lower, self.row_upper = ([], [], []), [], []

    def variable(self, upper=1.0, is_integer=True, cost=0.0):
        self.upper_bounds.append(upper)
        self.is_integer.append(is_integer)
        self.cost.append(cost)
        return len(self.cost) - 1

    def row(self, terms, lower=-np.inf, upper=np.inf):
        for variable, coefficient in terms:
            for column, entry in zip(self.entries, (coefficient, len(self.row_lower), variable), strict=True):
                column.append(entry)
        self.row_lower.append(lower)
        self.row_upper.append(upper)

    def solve(self, seconds):
        data, rows, columns = self.entries
        matrix = csr_matrix((data, (rows, columns)), shape=(len(self.row_lower), len(self.cost)))
        return milp(
            np.array(self.cost),
            integrality=np.array(self.is_integer, int),
            bounds=Bounds(0, np.array(self.upper_bounds)),
            constraints=LinearConstraint(matrix, self.row_lower, self.row_upper),
            options={"time_limit": seconds, "mip_rel_gap": 1e-4},
        )


class Checkmate:
    def __init__(self, problem, budget, most_cost):
        self.problem, self.budget, self.model = problem, budget, Model()
        steps, self.stages = problem.steps, range(len(problem.steps))
        total = sum(step.cost for step in steps)
        self.runs = {
            (t, i): self.model.variable(self._may_run(t, i), cost=steps[i].cost / total)
            for t in self.stages for i in range(t + 1)
        }  # fmt: skip
        self.stored = {
            (t, v): self.model.variable()
            for v, made in problem.producer.items() if problem.takes_room(v)
            for t in range(made + 1, len(steps))
        }  # fmt: skip
        self.model.row([(x, self.model.cost[x]) for x in self.runs.values()], upper=most_cost / total)
        for t in self.stages:
            self._order_of(t)
            self._memory_of(t)

    def least_cost(self, seconds=60):
        """None: there is no plan. Otherwise its cost, and a lower bound of all costs."""
        found = self.model.solve(seconds)
        total = sum(step.cost for step in self.problem.steps)
        if found.status == 2:
            return None
        assert found.x is not None, found.message
        return found.fun * total, found.mip_dual_bound * total

    def _may_run(self, t, i):
        step = self.problem.steps[i]
        overwritten = any(v in other.overwrites for v in step.reads for other in self.problem.steps[:t])
        return 1.0 if i == t or (step.repeatable and not overwritten) else 0.0

    def _order_of(self, t):
        problem, model = self.problem, self.model
        model.row([(self.runs[t, t], 1)], lower=1)
        for i in range(t + 1):
            for v in problem.steps[i].reads:
                if not problem.takes_room(v):
                    continue
                made = problem.producer[v]
                there = [(self.runs[t, made], 1)] + ([(self.stored[t, v], 1)] if (t, v) in self.stored else [])
                model.row([(self.runs[t, i], -1), *there], lower=0)
        for v, made in problem.producer.items():
            if (t, v) not in self.stored:
                continue
            before = [(self.runs[t - 1, made], 1)] + ([(self.stored[t - 1, v], 1)] if (t - 1, v) in self.stored else [])
            model.row([(self.stored[t, v], -1), *before], lower=0)
            if problem.values[v].must_stay and problem.readers[v] and t <= problem.readers[v][-1]:
                model.row([(self.stored[t, v], 1)], lower=1)

    def _memory_of(self, t):
        """Bytes while each step of the stage runs, as parts of the budget."""
        problem, model = self.problem, self.model
        sizes = [value.bytes / self.budget for value in problem.values]
        terms = [(x, sizes[v]) for (stage, v), x in self.stored.items() if stage == t]
        beside = read_after_overwriting(problem, self.stages) / self.budget
        for k in range(t + 1):
            step, run = problem.steps[k], self.runs[t, k]
            # A value that is stored and made again is there once: it is let go of first.
            made = [(run, sizes[v]) for v in step.writes if problem.takes_room(v)]
            again = [] if k == t else [(run, sizes[v]) for v in step.writes if not problem.takes_room(v)]
            gone = {v: self._gone_after(t, v, k) for v in {*step.reads, *step.writes} if problem.takes_room(v)}
            eaten = self._eaten(step, run, gone)
            model.row([*terms, *made, *again, (run, step.scratch / self.budget), *eaten], upper=1 - beside)
            terms += made + [(x, -sizes[v]) for v, x in gone.items()]

    def _eaten(self, step, run, gone):
        """One operand of the result's size, if nobody reads it afterwards."""
        if not step.in_place or len(step.writes) != 1 or not self.problem.takes_room(step.writes[0]):
            return []
        size = self.problem.values[step.writes[0]].bytes
        choices = [(self.model.variable(), x) for v, x in gone.items() if v in step.reads and self.problem.values[v].bytes == size]
        for chosen, is_gone in choices:
            self.model.row([(chosen, 1), (is_gone, -1)], upper=0)
        if choices:
            self.model.row([(chosen, 1) for chosen, _ in choices], upper=1)
        return [(chosen, -size / self.budget) for chosen, _ in choices]

    def _gone_after(self, t, v, k):
        """1 only if step k runs in stage t, and neither a later step of the stage nor the next stage needs v."""
        gone = self.model.variable()
        self.model.row([(gone, 1), (self.runs[t, k], -1)], upper=0)
        if (t + 1, v) in self.stored:
            self.model.row([(gone, 1), (self.stored[t + 1, v], 1)], upper=1)
        for reader in self.problem.readers[v]:
            if k < reader <= t:
                self.model.row([(gone, 1), (self.runs[t, reader], 1)], upper=1)
        return gone
