/* The tile's instances, and which of them this CPU can run.
 *
 *                 vector registers     rows x 16 floats       accumulators
 *     avx512      32 of 16 floats      8                      8
 *     avx2        16 of 8              6                      12
 *     neon        32 of 4              6                      24
 *     baseline    16 of 4 (SSE2)       2                      8
 *
 * Only the functions of an instance may hold its instructions: the rest of the library runs anywhere. There is no state:
 * who selects a tile keeps it, so several can be used side by side.
 */
#include "tile.h"

#include <stddef.h>

#if defined(__x86_64__)
#define X86 1
#include <immintrin.h>
#else
#define X86 0
#endif
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#define COLUMNS 16
#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if X86

INLINE __attribute__((target("avx512f"))) __mmask16 first_lanes_avx512(int64_t n) { return (__mmask16)((1u << n) - 1); }

#define TILE(name) name##_avx512
#define TARGET __attribute__((target("avx512f")))
#define WIDTH 16
#define ROWS 8
#define SPLAT(x) (vector_avx512) _mm512_set1_ps(x)
#define MULTIPLY_ADD(x, y, z) (vector_avx512) _mm512_fmadd_ps((__m512)(x), (__m512)(y), (__m512)(z))
#define LOAD_SOME(p, n) (vector_avx512) _mm512_maskz_loadu_ps(first_lanes_avx512(n), p)
#define STORE_SOME(p, n, v) _mm512_mask_storeu_ps(p, first_lanes_avx512(n), (__m512)(v))
#include "tile_body.inc"

INLINE __attribute__((target("avx2,fma"))) __m256i first_lanes_avx2(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

#define TILE(name) name##_avx2
#define TARGET __attribute__((target("avx2,fma")))
#define WIDTH 8
#define ROWS 6
#define SPLAT(x) (vector_avx2) _mm256_set1_ps(x)
#define MULTIPLY_ADD(x, y, z) (vector_avx2) _mm256_fmadd_ps((__m256)(x), (__m256)(y), (__m256)(z))
#define LOAD_SOME(p, n) (vector_avx2) _mm256_maskload_ps(p, first_lanes_avx2(n))
#define STORE_SOME(p, n, v) _mm256_maskstore_ps(p, first_lanes_avx2(n), (__m256)(v))
#include "tile_body.inc"

#endif

/* Vectors of four; fewer floats one by one, since there are no masks. */
#define SPLAT_4(x) {x, x, x, x}
#define LOAD_3(p, n) {(p)[0], (n) > 1 ? (p)[1] : 0, (n) > 2 ? (p)[2] : 0, 0}
#define STORE_3(p, n, v)                                                                                               \
    do {                                                                                                               \
        (p)[0] = (v)[0];                                                                                               \
        if ((n) > 1) (p)[1] = (v)[1];                                                                                  \
        if ((n) > 2) (p)[2] = (v)[2];                                                                                  \
    } while (0)

#if defined(__aarch64__)

#define TILE(name) name##_neon
#define TARGET
#define WIDTH 4
#define ROWS 6
#define SPLAT(x) (TILE(vector)) SPLAT_4(x)
#define MULTIPLY_ADD(x, y, z) (vector_neon) vfmaq_f32((float32x4_t)(z), (float32x4_t)(x), (float32x4_t)(y))
#define LOAD_SOME(p, n) (TILE(vector)) LOAD_3(p, n)
#define STORE_SOME STORE_3
#include "tile_body.inc"

#endif

#define TILE(name) name##_baseline
#define TARGET
#define WIDTH 4
#define ROWS 2
#define SPLAT(x) (TILE(vector)) SPLAT_4(x)
#define MULTIPLY_ADD(x, y, z) ((x) * (y) + (z))
#define LOAD_SOME(p, n) (TILE(vector)) LOAD_3(p, n)
#define STORE_SOME STORE_3
#include "tile_body.inc"

#define ENTRY(name) {#name, rows_##name, corenet_tile_##name, corenet_near_tile_##name}

/* The best first. */
static const corenet_tile TILES[] = {
#if X86
    ENTRY(avx512),
    ENTRY(avx2),
#elif defined(__aarch64__)
    ENTRY(neon),
#endif
    ENTRY(baseline),
};

static int same(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

/* The builtins ask the operating system, too, whether it saves the registers. */
static int cpu_has(const char *name) {
#if X86
    __builtin_cpu_init();
    if (same(name, "avx512")) return __builtin_cpu_supports("avx512f") != 0;
    if (same(name, "avx2")) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return same(name, "neon") || same(name, "baseline"); /* which every CPU has that this was compiled for */
}

const corenet_tile *corenet_tile_select(const char *name) {
    for (size_t i = 0; i < sizeof TILES / sizeof *TILES; i++)
        if ((same(name, "auto") || same(name, TILES[i].name)) && cpu_has(TILES[i].name)) return &TILES[i];
    return NULL;
}
