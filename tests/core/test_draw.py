"""The software raster of `draw.h`: a pixel belongs to a shape when its centre does."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest
from counter import compiler

import puffer_core
from puffer_core.abi import Canvas

SHAPES = {
    "clear": "puffer_clear(canvas, 0x010203)",
    "rect": "puffer_rect(canvas, a, b, c, d, 0xFF0000)",
    "frame": "puffer_frame(canvas, a, b, c, d, 1, 0xFF0000)",
    "disc": "puffer_disc(canvas, a, b, c, 0xFF0000)",
    "ring": "puffer_ring(canvas, a, b, c, d, 0xFF0000)",
    "line": "puffer_line(canvas, a, b, c, d, 1, 0xFF0000)",
    "text": 'puffer_text(canvas, a, b, 1, 0xFF0000, "Il\\nA~")',
    "size": "puffer_canvas(canvas, 40, 30, 60)",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("draw")
    functions = [
        f"void {name}(PufferCanvas *canvas, float a, float b, float c, float d)"
        f" {{ (void)a; (void)b; (void)c; (void)d; {call}; }}\n"
        for name, call in SHAPES.items()
    ]
    (folder / "draw.c").write_text("#include <puffer/draw.h>\n" + "".join(functions))
    include = puffer_core.get_include()
    command = [compiler(), "-std=gnu11", "-O1", "-shared", "-fPIC", "-I", include, folder / "draw.c", "-lm"]
    subprocess.run([*command, "-o", folder / "draw.so"], check=True)
    return ctypes.CDLL(str(folder / "draw.so"))


@pytest.fixture
def draw(library):
    def draw(shape, *numbers, size=(8, 12)):
        picture = np.zeros((*size, 3), np.uint8)
        canvas = Canvas(rgb=picture.ctypes.data, width=size[1], height=size[0])
        floats = [ctypes.c_float(number) for number in (*numbers, 0, 0, 0, 0)[:4]]
        getattr(library, shape)(ctypes.byref(canvas), *floats)
        return picture

    return draw


def test_clear_paints_every_pixel_in_red_green_blue(draw):
    assert (draw("clear") == [1, 2, 3]).all()


def test_rectangles_hold_the_pixels_whose_centres_they_hold(draw):
    red = draw("rect", 2, 1, 3, 4)[..., 0] == 255
    assert red.sum() == 12
    assert red[1:5, 2:5].all()
    assert (draw("rect", 1.6, 0, 1, 1)[0, :, 0] == 255).tolist() == [x == 2 for x in range(12)]
    assert not draw("rect", 2, 2, 0.2, 3).any()


def test_frames_are_hollow(draw):
    red = draw("frame", 1, 1, 5, 4)[..., 0] == 255
    assert red.sum() == 14
    assert not red[2:4, 2:5].any()


def test_discs_are_round_and_never_vanish(draw):
    red = draw("disc", 6, 4, 3)[..., 0] == 255
    assert np.array_equal(red, red[::-1])
    assert np.array_equal(red, red[:, ::-1])
    assert red.sum() == 32
    assert (draw("disc", 6.5, 4.5, 0.1)[..., 0] == 255).sum() == 1
    ring = draw("ring", 6, 4, 3, 1)[..., 0] == 255
    assert 0 < ring.sum() < red.sum()
    assert not (ring & ~red).any()


def test_lines_join_their_ends(draw):
    red = draw("line", 1.5, 1.5, 6.5, 6.5)[..., 0] == 255
    assert np.argwhere(red).tolist() == [[i, i] for i in range(1, 7)]
    assert (draw("line", 3.5, 2.5, 3.5, 2.5)[..., 0] == 255).sum() == 1


def test_text_has_letters_lines_and_a_sign_for_the_unknown(draw):
    red = draw("text", 0, 0, size=(16, 12))[..., 0] == 255
    assert red[:7, 1:4].sum() == 11, "I: two bars and a stem"
    assert red[:7, 6:11].sum() == 11, "l is drawn as L"
    assert red[8:15, :5].any(), "the second line"
    assert red[8:15, 6:11].any(), "~ is drawn as ?"


@pytest.mark.parametrize("shape", sorted(set(SHAPES) - {"size"}))
@pytest.mark.parametrize(
    "numbers", [(-1e30, 3, 1e30, 2), (np.nan,) * 4, (np.inf, -np.inf, np.inf, 1), (-5, -5, 100, 100)]
)
def test_nothing_is_drawn_outside(library, shape, numbers):
    guarded = np.full((12, 12, 3), 7, np.uint8)
    canvas = Canvas(rgb=guarded[2:].ctypes.data, width=12, height=8)
    getattr(library, shape)(ctypes.byref(canvas), *[ctypes.c_float(number) for number in numbers])
    assert (guarded[:2] == 7).all()
    assert (guarded[10:] == 7).all()


def test_a_canvas_without_pixels_is_told_its_size_and_drawn_on_by_nobody(library):
    canvas = Canvas()
    zeros = [ctypes.c_float(1)] * 4
    library.size(ctypes.byref(canvas), *zeros)
    assert (canvas.width, canvas.height, canvas.fps) == (40, 30, 60)
    for shape in SHAPES:
        getattr(library, shape)(ctypes.byref(canvas), *zeros)
