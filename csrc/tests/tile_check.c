/* Every tile that this CPU has against one chain of operations for each element, to the bit, under the sanitizers. From
 * the project's root:
 *
 *   gcc -std=c11 -O2 -g -ffp-contract=fast -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all \
 *       -Icsrc csrc/tests/tile_check.c csrc/tile.c -o /tmp/tile_check -lm && /tmp/tile_check
 *
 * Rows, taps and steps lie anywhere; arrays end with the last element that may be touched, and what may not be touched
 * in between is NaN. It prints each tile's name and a hash of all its results.
 */
#include "tile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 16, MOST_ROWS = 16, MOST_TAPS = 4, MOST_STEPS = 7 };

typedef struct {
    float *values; /* not aligned to more than a float */
    void *memory;
    size_t count;
} array;

static uint32_t seed;

static uint32_t next(uint32_t limit) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % limit;
}

static float value(void) { return ((float)next(1 << 20) - (float)(1 << 19)) / (1 << 17); }

static array make(size_t count) {
    size_t shift = next(16);
    float *memory = malloc((shift + count + !count) * sizeof *memory);
    if (!memory) exit(2);
    for (size_t i = 0; i < shift + count; i++) memory[i] = NAN;
    return (array){memory + shift, memory, count};
}

static void fail(const corenet_tile *tile, const char *what, int64_t rows, int64_t cols, int64_t taps) {
    fprintf(stderr, "FAILED: %s: %s (rows=%d, cols=%d, taps=%d)\n", tile->name, what, (int)rows, (int)cols, (int)taps);
    exit(1);
}

/* One rounding for a product that is added, or two; volatile: the compiler may not fuse them. */
static float add_product(float total, float x, float y, int fused) {
    if (fused) return fmaf(x, y, total);
    volatile float product = x * y;
    return total + product;
}

static uint64_t check(const corenet_tile *tile, int near, int64_t rows, int64_t cols, int64_t taps, int given,
                      int fused) {
    int64_t a_row[MOST_ROWS], c_row[MOST_ROWS], a_tap[MOST_TAPS], b_tap[MOST_TAPS];
    int64_t length = next(MOST_STEPS + 1), a_step = next(4), b_step = cols + next(3);
    int64_t a_end = 0, b_end = 0, c_end = next(3);
    for (int64_t m = 0; m < rows; m++) {
        a_row[m] = near && m ? a_row[m - 1] + 1 : (int64_t)next(40);
        c_row[m] = c_end;
        c_end += cols + (m + 1 < rows ? next(5) : 0);
    }
    for (int64_t m = rows - 1; m > 0; m--) { /* in any order */
        int64_t other = next((uint32_t)m + 1), place = c_row[m];
        c_row[m] = c_row[other], c_row[other] = place;
    }
    for (int64_t t = 0; t < taps; t++) {
        a_tap[t] = next(50), b_tap[t] = next(50);
        for (int64_t m = 0; m < rows && length; m++) {
            int64_t end = a_row[m] + a_tap[t] + (length - 1) * a_step + 1;
            if (end > a_end) a_end = end;
        }
        if (length && b_tap[t] + (length - 1) * b_step + cols > b_end) b_end = b_tap[t] + (length - 1) * b_step + cols;
    }
    array a = make((size_t)a_end), b = make((size_t)b_end), c = make((size_t)c_end), start = make((size_t)cols);
    for (int64_t t = 0; t < taps; t++)
        for (int64_t l = 0; l < length; l++) {
            for (int64_t m = 0; m < rows; m++) a.values[a_row[m] + a_tap[t] + l * a_step] = value();
            for (int64_t j = 0; j < cols; j++) b.values[b_tap[t] + l * b_step + j] = value();
        }
    array expected = {malloc((c.count + 1) * sizeof(float)), NULL, c.count};
    if (!expected.values) exit(2);
    for (int64_t j = 0; j < cols; j++) start.values[j] = value();
    for (int64_t m = 0; m < rows && !given; m++)
        for (int64_t j = 0; j < cols; j++) c.values[c_row[m] + j] = value();
    memcpy(expected.values, c.values, c.count * sizeof(float));
    for (int64_t m = 0; m < rows; m++)
        for (int64_t j = 0; j < cols; j++) {
            float total = given ? start.values[j] : c.values[c_row[m] + j];
            for (int64_t t = 0; t < taps; t++)
                for (int64_t l = 0; l < length; l++)
                    total = add_product(total, a.values[a_row[m] + a_tap[t] + l * a_step],
                                        b.values[b_tap[t] + l * b_step + j], fused);
            expected.values[c_row[m] + j] = total;
        }
    (near ? tile->near : tile->any)(a.values, a_row, rows, a_tap, b_tap, taps, length, a_step, b.values, b_step,
                                    c.values, c_row, cols, given ? start.values : NULL);
    /* To the bit, what was not to be written included. */
    if (memcmp(expected.values, c.values, c.count * sizeof(float))) fail(tile, "other bits", rows, cols, taps);
    uint64_t hash = 14695981039346656037u;
    for (int64_t m = 0; m < rows; m++)
        for (int64_t j = 0; j < cols; j++) {
            uint32_t bits;
            memcpy(&bits, &c.values[c_row[m] + j], sizeof bits);
            hash = (hash ^ bits) * 1099511628211u;
        }
    free(a.memory), free(b.memory), free(c.memory), free(start.memory), free(expected.values);
    return hash;
}

/* 2^-24 is lost if the product, 1 + 2^-11 + 2^-24, is rounded before it is added. Which one a baseline does depends on
 * the machine, and on what the compiler was asked for. */
static int rounds_once(const corenet_tile *tile) {
    const float x = 1 + 1.0f / 4096, start = -1 - 1.0f / 2048;
    const int64_t zero = 0;
    float total = 0;
    tile->any(&x, &zero, 1, &zero, &zero, 1, 1, 1, &x, 1, &total, &zero, 1, &start);
    return total != 0;
}

int main(void) {
    const char *names[] = {"avx512", "avx2", "neon", "baseline"};
    int tiles = 0;
    if (corenet_tile_select("sse9") || corenet_tile_select("")) return puts("a tile of no known name"), 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const corenet_tile *tile = corenet_tile_select(names[i]);
        if (!tile) continue;
        if (strcmp(tile->name, names[i]) || tile->rows > MOST_ROWS) fail(tile, "another tile", tile->rows, 0, 0);
        if (!tiles++ && corenet_tile_select("auto") != tile) fail(tile, "not chosen, and is the best", 0, 0, 0);
        int fused = rounds_once(tile);
        if (!fused && strcmp(tile->name, "baseline")) fail(tile, "products are rounded", 0, 0, 0);
        uint64_t hash = 0;
        /* Two rows all tiles have: those make the hash, so it is the same where the bits are. */
        for (int64_t rows = 0; rows <= tile->rows; rows++) {
            seed = (uint32_t)rows + 1;
            for (int64_t cols = 1; cols <= COLUMNS; cols++)
                for (int64_t taps = 0; taps <= MOST_TAPS; taps++)
                    for (int near = 0; near < 2; near++)
                        for (int given = 0; given < 2; given++) {
                            uint64_t one = check(tile, near, rows, cols, taps, given, fused);
                            if (rows <= 2) hash = hash * 31 + one;
                        }
        }
        printf("%s %016llx\n", tile->name, (unsigned long long)hash);
    }
    puts("tile_check: passed");
    return 0;
}
