"""The greedy schedule against the least makespans that a solver has proved."""

from __future__ import annotations

import csv
import json
import statistics
from dataclasses import fields
from pathlib import Path

import command
import pytest
from optimal_schedules import Instance, instances, least_makespan

pytestmark = pytest.mark.binary

TABLE = Path(__file__).with_suffix("").with_name("optimal_schedules.csv")


# Where a W that is begun as soon as the stage is free makes a forward or an input gradient late.
LONG_WEIGHT_GRADIENTS = {
    Instance(2, 4, 2, 1, 4, delay=4, in_flight=3): 36,
    Instance(3, 5, 1, 4, 6, delay=1, in_flight=2): 75,
    Instance(3, 5, 2, 2, 6, delay=1, in_flight=2): 66,
    Instance(3, 4, 3, 1, 6, delay=2, in_flight=3): 52,
}


def proved() -> dict[Instance, int]:
    rows = csv.DictReader(TABLE.read_text().splitlines())
    return {Instance(*(int(row[field.name]) for field in fields(Instance))): int(row["makespan"]) for row in rows}


def makespan(schedule: str, instance: Instance, *options) -> int:
    costs = f"F={instance.forward},I={instance.input_gradient},W={instance.weight_gradient},delay={instance.delay}"
    shape = ["--stages", instance.stages, "--micro-batches", instance.micro_batches, "--costs", costs]
    found = json.loads(command.run("schedule", schedule, *shape, *options, "--json").stdout)
    if options:
        assert max(found["peak_in_flight"]) <= instance.in_flight
    return found["makespan"]


def test_the_table_has_every_instance():
    assert list(proved()) == instances()


def test_greedy_is_near_what_is_proved_best():
    """At most 1 % above in the median and 10 % at worst; never below, which would be a wrong proof or a wrong time."""
    table = proved()
    ratios = {i: makespan("greedy", i, "--in-flight", i.in_flight) / best for i, best in table.items()}
    assert min(ratios.values()) >= 1.0
    assert statistics.median(ratios.values()) <= 1.01
    assert max(ratios.values()) <= 1.10, max(ratios, key=ratios.get)


@pytest.mark.parametrize("instance", LONG_WEIGHT_GRADIENTS)
def test_greedy_waits_for_what_comes_before_a_weight_gradient_would_end(instance):
    assert makespan("greedy", instance, "--in-flight", instance.in_flight) == LONG_WEIGHT_GRADIENTS[instance]


def test_greedy_at_zero_delay_is_zb_h1():
    for instance in instances():
        if instance.delay == 0 and instance.in_flight == min(instance.stages, instance.micro_batches):
            greedy = makespan("greedy", instance, "--in-flight", instance.in_flight)
            h1 = makespan("zb-h1", instance)
            assert greedy == h1 if instance.forward == instance.input_gradient else greedy <= h1


def test_the_solver_still_proves_the_table():
    """A tenth of it, the hardest included."""
    pytest.importorskip("ortools")
    assert {i: least_makespan(i) for i in LONG_WEIGHT_GRADIENTS} == LONG_WEIGHT_GRADIENTS
    table = proved()
    chosen = instances()[::10] + instances()[-1:]
    assert {i: least_makespan(i) for i in chosen} == {i: table[i] for i in chosen}
