"""What is read from programs that were compiled for accelerators, and said of them."""

import jax
import pytest

import afga_jax
import toy
from benchmarks import hlo
from benchmarks.accelerators import CASES
from benchmarks.accelerators_report import page, seconds
from benchmarks.targets import LAUNCH, TARGETS

# Three steps over ten rows: a copy of all rows, a gradient by a library, its update.
PROGRAM = """HloModule round

%update (p0: f32[10,8], p1: f32[1,8], p2: s32[]) -> f32[10,8] {
  %p0 = f32[10,8]{1,0} parameter(0)
  %p1 = f32[1,8]{1,0} parameter(1)
  %p2 = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %new = f32[10,8]{1,0} dynamic-update-slice(%p0, %p1, %p2, %zero)
}

%body (carry: (s32[], f32[10,8])) -> (s32[], f32[10,8]) {
  %carry = (s32[], f32[10,8]{1,0}) parameter(0)
  %n = s32[] get-tuple-element(%carry), index=0
  %x = f32[10,8]{1,0} get-tuple-element(%carry), index=1
  %kept = f32[10,8]{1,0:T(8,128)} copy(%x)
  %g = (f32[1,8]{1,0}, s8[16]{0}) custom-call(%kept), custom_call_target="__cublas$gemm", metadata={op_name="while/body/transpose(jvp(f))/dot"}
  %d = f32[1,8]{1,0} get-tuple-element(%g), index=0
  %put = f32[10,8]{1,0} fusion(%kept, %d, %n), kind=kLoop, calls=%update
  ROOT %out = (s32[], f32[10,8]{1,0}) tuple(%n, %put)
}

%test (c: (s32[], f32[10,8])) -> pred[] {
  %c = (s32[], f32[10,8]{1,0}) parameter(0)
  ROOT %go = pred[] constant(true)
}

ENTRY %main (a: f32[10,8]) -> f32[10,8] {
  %a = f32[10,8]{1,0} parameter(0)
  %i = s32[] constant(0)
  %start = (s32[], f32[10,8]{1,0}) tuple(%i, %a)
  %loop = (s32[], f32[10,8]{1,0}) while(%start), condition=%test, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  %last = f32[10,8]{1,0} get-tuple-element(%loop), index=1
  ROOT %neg = f32[10,8]{1,0} negate(%last)
}
"""  # noqa: E501


def test_what_a_turn_starts_copies_calls_and_moves():
    found = hlo.Program(PROGRAM, rows=10).counts()
    array = 4 * 10 * 8
    # The update writes one row in place and reads it and its number.
    assert found.outside == hlo.Part(2, 1, 1, {}, 2 * array + 2 * 32 + 4)
    library = {"__cublas$gemm": 1}
    assert found.gradient == hlo.Part(1, 0, 0, library, array + 32 + 16)
    assert found.round == hlo.Part(1, 0, 0, {}, 2 * array)
    assert (found.trips, found.loops) == (3, 1)
    # Where the compiler does not say how often, the condition does.
    silent = PROGRAM.replace(', backend_config={"known_trip_count":{"n":"3"}}', "")
    counting = silent.replace(
        "ROOT %go = pred[] constant(true)",
        "%n = s32[] get-tuple-element(%c), index=0\n  %end = s32[] constant(3)\n"
        "  ROOT %go = pred[] compare(%n, %end), direction=LT",
    )
    assert hlo.Program(silent, rows=10).counts().trips is None
    assert hlo.Program(counting, rows=10).counts().trips == 3


def test_a_real_round_has_one_loop_of_local_steps():
    algorithm = afga_jax.build(
        "afga", toy.logistic(), num_clients=6, active=2, local_steps=3, local_lr=0.1
    )
    key = jax.random.key(0)
    shapes = jax.eval_shape(algorithm.init, key)
    text = jax.jit(algorithm.round).lower(key, shapes, toy.clients(6)).compile()
    found = hlo.Program(text.as_text(), rows=6).counts()
    assert found.trips == 3
    assert found.gradient.kernels > 0


def test_the_estimate_is_the_larger_of_two_bounds_and_the_launches():
    part = {"kernels": 3, "bytes": 0, "copies": 0, "client_copies": 0, "library": {}}
    target = TARGETS["a6000"]
    figures = {
        "turns": 4.0,
        "trips": 2,
        "operations": target.peaks["float32"],
        "dtype": "float32",
        "outside": {**part, "bytes": target.bandwidth},
        "gradient": part,
        "round": part,
    }
    whole, arithmetic, moved, launches = seconds(target, figures)
    assert (arithmetic, moved) == (4, 2)
    assert launches == pytest.approx(LAUNCH * (2 * 6 + 3))
    assert whole == pytest.approx(4 + launches)


def test_what_was_not_compiled_is_said_to_be_missing():
    text = page({"h100": {"afga-convmixer-span": {"failed": "no room"}}}, CASES)
    assert "afga-convmixer-dense was not compiled" in text
    assert "afga-convmixer-span could not be compiled (no room)" in text
