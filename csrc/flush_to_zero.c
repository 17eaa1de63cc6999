/* Denormal numbers (below 1.2e-38 in float32) make an operation up to a hundred times slower. They appear late in a
 * training run, as weights and momenta decay towards 0, and mean nothing there. Every thread has its own switch, so a
 * worker sets it in each of its threads and the user's process is never touched.
 */
#include "flush_to_zero.h"

#if defined(__x86_64__) || defined(__SSE2__)

#include <xmmintrin.h>

/* MXCSR bit 15: a result that would be denormal becomes 0 (FTZ). Bit 6: a denormal operand counts as 0 (DAZ). */
enum { FTZ_AND_DAZ = 0x8040 };

void corenet_set_flush_to_zero(int on) {
    unsigned csr = _mm_getcsr();
    _mm_setcsr(on ? csr | FTZ_AND_DAZ : csr & ~(unsigned)FTZ_AND_DAZ);
}

int corenet_flush_to_zero(void) { return (_mm_getcsr() & FTZ_AND_DAZ) == FTZ_AND_DAZ; }

#elif defined(__aarch64__)

#include <stdint.h>

/* FPCR bit 24 does both. */
static const uint64_t FZ = UINT64_C(1) << 24;

static uint64_t get_fpcr(void) {
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
}

void corenet_set_flush_to_zero(int on) {
    uint64_t fpcr = on ? get_fpcr() | FZ : get_fpcr() & ~FZ;
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr));
}

int corenet_flush_to_zero(void) { return (get_fpcr() & FZ) != 0; }

#else

void corenet_set_flush_to_zero(int on) { (void)on; }

int corenet_flush_to_zero(void) { return 0; }

#endif
