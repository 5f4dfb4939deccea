// Software drawing for environments: rectangles, discs, lines and text into an RGB array of the caller's.
//
// No display, no library, no file. A pixel belongs to a shape when its centre does (no smoothing), so the same state
// gives the same picture on every machine. Coordinates are floats in pixels, y grows downwards; colours are 0xRRGGBB.
// Everything outside the canvas is cut off, and nothing is drawn on a canvas without pixels.
#ifndef PUFFER_DRAW_H
#define PUFFER_DRAW_H

#include <puffer/env.h>

#define PUFFER_BACKGROUND 0x061818u
#define PUFFER_CYAN 0x00BBBBu   // the agent
#define PUFFER_RED 0xBB0000u    // danger, or the target
#define PUFFER_WHITE 0xF1F1F1u  // text
#define PUFFER_GLYPH_WIDTH 6    // of one character at scale 1, the gap included
#define PUFFER_GLYPH_HEIGHT 8

// States the size and the pace of the picture; 0 where the caller asked for those only. The first line of a `draw`:
//   if (!puffer_canvas(canvas, 640, 480, 60)) return;
static inline int puffer_canvas(PufferCanvas *canvas, int width, int height, float fps) {
    canvas->fps = fps;
    if (canvas->rgb != NULL) return 1;
    canvas->width = width;
    canvas->height = height;
    return 0;
}

// The first pixel whose centre is at or after x, within 0..size.
static inline int puffer_pixel(float x, int size) {
    const float first = ceilf(x - 0.5f);
    return first > 0.0f ? (first < (float)size ? (int)first : size) : 0;
}

static inline void puffer_put(uint8_t *pixel, uint32_t rgb) {
    pixel[0] = (uint8_t)(rgb >> 16);
    pixel[1] = (uint8_t)(rgb >> 8);
    pixel[2] = (uint8_t)rgb;
}

static inline void puffer_rect(PufferCanvas *canvas, float x, float y, float w, float h, uint32_t rgb) {
    if (canvas->rgb == NULL) return;
    const int x0 = puffer_pixel(x, canvas->width), x1 = puffer_pixel(x + w, canvas->width);
    const int y0 = puffer_pixel(y, canvas->height), y1 = puffer_pixel(y + h, canvas->height);
    for (int row = y0; row < y1; row++) {
        uint8_t *pixels = canvas->rgb + (size_t)row * (size_t)canvas->width * 3;
        for (int column = x0; column < x1; column++) puffer_put(pixels + (size_t)column * 3, rgb);
    }
}

static inline void puffer_clear(PufferCanvas *canvas, uint32_t rgb) {
    puffer_rect(canvas, 0.0f, 0.0f, (float)canvas->width, (float)canvas->height, rgb);
}

// The outline of a rectangle, `thickness` pixels inwards.
static inline void puffer_frame(PufferCanvas *canvas, float x, float y, float w, float h, float thickness,
                                uint32_t rgb) {
    puffer_rect(canvas, x, y, w, thickness, rgb);
    puffer_rect(canvas, x, y + h - thickness, w, thickness, rgb);
    puffer_rect(canvas, x, y, thickness, h, rgb);
    puffer_rect(canvas, x + w - thickness, y, thickness, h, rgb);
}

// The outline of a disc, `thickness` pixels inwards.
static inline void puffer_ring(PufferCanvas *canvas, float cx, float cy, float r, float thickness, uint32_t rgb) {
    if (canvas->rgb == NULL || !(r > 0.0f)) return;
    const float inner = r - thickness, outer2 = r * r, inner2 = inner > 0.0f ? inner * inner : -1.0f;
    const int x0 = puffer_pixel(cx - r, canvas->width), x1 = puffer_pixel(cx + r, canvas->width);
    const int y0 = puffer_pixel(cy - r, canvas->height), y1 = puffer_pixel(cy + r, canvas->height);
    for (int row = y0; row < y1; row++) {
        uint8_t *pixels = canvas->rgb + (size_t)row * (size_t)canvas->width * 3;
        const float dy = (float)row + 0.5f - cy;
        for (int column = x0; column < x1; column++) {
            const float dx = (float)column + 0.5f - cx, distance2 = dx * dx + dy * dy;
            if (distance2 <= outer2 && distance2 > inner2) puffer_put(pixels + (size_t)column * 3, rgb);
        }
    }
}

static inline void puffer_disc(PufferCanvas *canvas, float cx, float cy, float r, uint32_t rgb) {
    puffer_ring(canvas, cx, cy, r, r, rgb);
    puffer_rect(canvas, cx - 0.5f, cy - 0.5f, 1.0f, 1.0f, rgb);  // the centre, also of a disc smaller than a pixel
}

// A segment with round ends: every pixel whose centre is within thickness / 2 of it.
static inline void puffer_line(PufferCanvas *canvas, float x0, float y0, float x1, float y1, float thickness,
                               uint32_t rgb) {
    if (canvas->rgb == NULL) return;
    const float half = thickness > 1.0f ? thickness * 0.5f : 0.5f;
    const float dx = x1 - x0, dy = y1 - y0, length2 = dx * dx + dy * dy;
    const int left = puffer_pixel(fminf(x0, x1) - half, canvas->width);
    const int right = puffer_pixel(fmaxf(x0, x1) + half, canvas->width);
    const int top = puffer_pixel(fminf(y0, y1) - half, canvas->height);
    const int bottom = puffer_pixel(fmaxf(y0, y1) + half, canvas->height);
    for (int row = top; row < bottom; row++) {
        uint8_t *pixels = canvas->rgb + (size_t)row * (size_t)canvas->width * 3;
        for (int column = left; column < right; column++) {
            const float px = (float)column + 0.5f - x0, py = (float)row + 0.5f - y0;
            float along = length2 > 0.0f ? (px * dx + py * dy) / length2 : 0.0f;
            along = along < 0.0f ? 0.0f : along > 1.0f ? 1.0f : along;
            const float ex = px - along * dx, ey = py - along * dy;
            if (ex * ex + ey * ey <= half * half) puffer_put(pixels + (size_t)column * 3, rgb);
        }
    }
}

// Seven rows of five pixels, lowest bit first: row 0 is the top, column 0 the left. Characters 32 to 95.
static inline uint64_t puffer_glyph(char character) {
    static const uint64_t glyphs[64] = {
        // clang-format off
        0x000000000, 0x100421084, 0x00000014A, 0x295F57D4A, 0x11F4717C4, 0x672222273, 0x593511526, 0x000000084,
        0x208210888, 0x088842082, 0x009575480, 0x0084F9080, 0x088400000, 0x000070000, 0x18C000000, 0x042222210,
        0x3A33AE62E, 0x3884210C4, 0x7C444422E, 0x3A306422E, 0x211F4A988, 0x3A3083C3F, 0x3A317842E, 0x10844221F,
        0x3A317462E, 0x3A10F462E, 0x00C6018C0, 0x088401080, 0x208208888, 0x001F07C00, 0x088882082, 0x10044422E,
        0x383DAF62E, 0x4631FC62E, 0x3E317C62F, 0x3A210862E, 0x3E318C62F, 0x7C217843F, 0x04217843F, 0x3A31E862E,
        0x4631FC631, 0x38842108E, 0x19284211C, 0x452519531, 0x7C2108421, 0x4631AD771, 0x4739ACE71, 0x3A318C62E,
        0x04217C62F, 0x59358C62E, 0x45257C62F, 0x3E107043E, 0x10842109F, 0x3A318C631, 0x114A8C631, 0x2AB5AC631,
        0x462A22A31, 0x108422A31, 0x7C222221F, 0x38421084E, 0x420820821, 0x39084210E, 0x000004544, 0x7C0000000,
        // clang-format on
    };
    const int code = character >= 'a' && character <= 'z' ? character - 'a' + 'A' : character;
    return code >= 32 && code < 96 ? glyphs[code - 32] : glyphs['?' - 32];
}

// Upper-case letters, digits and signs in cells of 6 x 8 pixels times `scale`; (x, y) is the top left, \n a new line.
static inline void puffer_text(PufferCanvas *canvas, float x, float y, int scale, uint32_t rgb, const char *text) {
    float left = x;
    const float size = (float)scale;
    for (; *text != '\0'; text++) {
        if (*text == '\n') {
            left = x;
            y += PUFFER_GLYPH_HEIGHT * size;
            continue;
        }
        const uint64_t glyph = puffer_glyph(*text);
        for (int bit = 0; bit < 35; bit++) {
            if (!(glyph >> bit & 1)) continue;
            puffer_rect(canvas, left + (float)(bit % 5) * size, y + (float)(bit / 5) * size, size, size, rgb);
        }
        left += PUFFER_GLYPH_WIDTH * size;
    }
}

#endif
