/* The register tile in C, once for each instruction set. What it computes: corenet/kernels/tile.py; how: tile_body.inc. */
#ifndef CORENET_TILE_H
#define CORENET_TILE_H

#include <stdint.h>

/* For each row m < rows and column j < cols, with the sum over taps and over steps l = 0 ... length - 1 in this order:
 *
 *     c[c_row[m] + j]  =  start[j]  +  sum of  a[a_row[m] + a_tap[tap] + l * a_step] * b[b_tap[tap] + l * b_step + j]
 *
 * With start == NULL the sum begins with what is in c. rows: 0 to the tile's own number; cols: 1 to 16. Nothing else is
 * read or written; floats need their own alignment, no more. c overlaps nothing else. */
typedef void (*corenet_tile_function)(const float *a, const int64_t *a_row, int64_t rows, const int64_t *a_tap,
                                      const int64_t *b_tap, int64_t taps, int64_t length, int64_t a_step,
                                      const float *b, int64_t b_step, float *c, const int64_t *c_row, int64_t cols,
                                      const float *start);

typedef struct {
    const char *name;           /* "avx512", "avx2", "neon" or "baseline" */
    int64_t rows;               /* at most so many in one call */
    corenet_tile_function any;  /* rows lie anywhere in a */
    corenet_tile_function near; /* rows are neighbours in a, a_row[m + 1] == a_row[m] + 1: faster there */
} corenet_tile;

/* The tile of that name, or the best one for "auto". NULL: the library has none for this kind of CPU, or this CPU lacks
 * the instructions, or its operating system does not save their registers. */
const corenet_tile *corenet_tile_select(const char *name);

#endif
