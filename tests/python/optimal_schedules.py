"""Proves the least makespans of schedules of F, I and W, by CP-SAT of OR-tools.

    python tests/python/optimal_schedules.py > tests/python/optimal_schedules.csv

Of S stages and m micro-batches, each stage runs F, I and W of each micro-batch, one pass at a time. F needs that of the
stage before, I that of the stage after, `delay` units earlier; W needs its I. At most `in_flight` micro-batches of a
stage are between the begin of their F and the end of their W. Micro-batches are alike, so that each stage may run each
kind in their order without loss.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import astuple, dataclass, fields


@dataclass(frozen=True)
class Instance:
    stages: int
    micro_batches: int
    forward: int
    input_gradient: int
    weight_gradient: int
    delay: int
    in_flight: int


def instances() -> list[Instance]:
    """Delays of 0 to 2 F; in flight as many as 1F1B has, and all."""
    found = []
    for stages, micro_batches, costs in itertools.product(range(1, 5), range(1, 7), [(2, 2, 2), (4, 5, 3)]):
        for delay in range(0, 2 * costs[0] + 1, costs[0] // 2):
            for in_flight in sorted({min(stages, micro_batches), micro_batches}):
                found.append(Instance(stages, micro_batches, *costs, delay, in_flight))
    return found


def least_makespan(instance: Instance) -> int:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    costs = {"F": instance.forward, "I": instance.input_gradient, "W": instance.weight_gradient}
    stages, micro_batches = range(instance.stages), range(instance.micro_batches)
    passes = sum(costs.values()) + 2 * instance.stages * instance.delay
    horizon = instance.micro_batches * instance.stages * passes
    begin = {key: model.new_int_var(0, horizon, f"{key}") for key in itertools.product(costs, micro_batches, stages)}
    end = {key: begin[key] + costs[key[0]] for key in begin}
    makespan = model.new_int_var(0, horizon, "makespan")
    for key in begin:
        model.add(end[key] <= makespan)
    for s in stages:
        model.add_no_overlap(
            [
                model.new_fixed_size_interval_var(begin[kind, k, s], costs[kind], "")
                for kind in costs
                for k in micro_batches
            ]
        )
        for k in micro_batches:
            model.add(begin["I", k, s] >= end["F", k, s])
            model.add(begin["W", k, s] >= end["I", k, s])
            if s > 0:
                model.add(begin["F", k, s] >= end["F", k, s - 1] + instance.delay)
                model.add(begin["I", k, s - 1] >= end["I", k, s] + instance.delay)
            if k > 0:
                for kind in costs:
                    model.add(begin[kind, k, s] >= end[kind, k - 1, s])
            if k >= instance.in_flight:
                model.add(begin["F", k, s] >= end["W", k - instance.in_flight, s])
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    assert status == cp_model.OPTIMAL, (instance, solver.status_name(status))
    return round(solver.objective_value)


def main() -> None:
    print(",".join([field.name for field in fields(Instance)] + ["makespan"]))
    for instance in instances():
        print(",".join(map(str, [*astuple(instance), least_makespan(instance)])))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
