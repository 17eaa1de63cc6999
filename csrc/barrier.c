/* The barrier: one word says both which round it is and whether the run was called off.
 *
 *        state     bit 0: aborted     bits 1..31: generation, the rounds completed (it may wrap round)
 *        arrived   how many have arrived in this round
 *        sleepers  how many are in the kernel, or on their way there
 *
 *   each of n                                    the last one to arrive
 *   ---------                                    ----------------------
 *   seen = state                                 seen = state
 *   arrived += 1                                 arrived += 1   -> n, so it is the last
 *   until state's generation != seen's:          arrived = 0
 *       spin, then yield, then:                  state: seen -> seen + one generation   (compare and swap)
 *       sleepers += 1                            if sleepers > 0: wake them
 *       sleep while state == seen
 *       sleepers -= 1
 *
 * The abort bit shares the word with the generation so that a round and an abort have an order: the compare and swap
 * fails if the bit was set first. A round is therefore passed by all n or by none, and a sleeper that watches this
 * word misses neither event. `arrived` goes back to 0 before the new generation is published: whoever is first in
 * the next round has seen that generation, so it counts from 0.
 *
 * A process may be killed anywhere in here. The others then wait until the parent, which notices, aborts. What the
 * dead one leaves behind is a count in `arrived` or `sleepers` that corenet_barrier_reset clears.
 */
#define _GNU_SOURCE /* syscall() under -std=c11 */
#include "barrier.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* One cache line each: those who watch `state` are not disturbed by those who arrive. */
struct corenet_barrier {
    _Alignas(64) _Atomic uint32_t state;
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t sleepers;
};

/* Between processes only lock-free atomics work: a lock would live in each process's own library. */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "32-bit atomics must be lock-free");
_Static_assert(sizeof(_Atomic uint32_t) == 4, "the kernel's futex is a plain 32-bit word");
_Static_assert(sizeof(struct corenet_barrier) == 192, "AtomicBarrier.WORDS in parallel/barrier.py says 48");

enum { ABORTED = 1, ONE_GENERATION = 2, YIELDS = 64 };

/* Nothing relies on this time-out; it bounds the harm of a wake-up that the kernel might lose. */
static const struct timespec SLEEP_LIMIT = {.tv_sec = 0, .tv_nsec = 100000000};

/* Tell the core that this is a spin loop: it saves power, and a hyper-thread beside it runs faster. */
static inline void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield");
#endif
}

/* Sleep while *word == seen. The kernel compares and goes to sleep as one action, so no wake-up falls in between. */
static void sleep_while(_Atomic uint32_t *word, uint32_t seen) {
#ifdef __linux__
    /* Not FUTEX_WAIT_PRIVATE: the sleeper and the waker are different processes. */
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT, seen, &SLEEP_LIMIT, NULL, 0);
#else
    (void)word, (void)seen;
    nanosleep(&(struct timespec){.tv_sec = 0, .tv_nsec = 50000}, NULL);
#endif
}

static void wake_all(_Atomic uint32_t *word) {
#ifdef __linux__
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
#else
    (void)word;
#endif
}

enum { PASSED = 0, STOPPED = 1, NOT_YET = 2 };

/* What `state` says to one who arrived when it was `seen`. The generation is asked first: a round that completed
 * before the abort was completed for everyone.
 * Acquire: whoever passes sees all that the others wrote before they arrived (see `arrived` below). */
static int look(const corenet_barrier *barrier, uint32_t seen) {
    uint32_t now = atomic_load_explicit(&barrier->state, memory_order_acquire);
    if ((now | ABORTED) != (seen | ABORTED)) return PASSED;
    return now & ABORTED ? STOPPED : NOT_YET;
}

size_t corenet_barrier_size(void) { return sizeof(struct corenet_barrier); }

int corenet_barrier_wait(corenet_barrier *barrier, uint32_t n, uint32_t spins) {
    /* Relaxed: the generation cannot move on before this process has arrived, so the value is never stale. */
    uint32_t seen = atomic_load_explicit(&barrier->state, memory_order_relaxed);
    if (seen & ABORTED) return STOPPED;

    /* Release: what was written before the barrier is handed to the last one to arrive. Acquire: the last one, which
     * reads the end of this chain of additions, sees what all the others wrote and hands it on through `state`. */
    if (atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel) + 1 == n) {
        /* Relaxed: the release of `state` below orders it before anything that the next round does. */
        atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
        /* Sequentially consistent, as the addition to `sleepers`: of "new generation, then read sleepers" here and
         * "count myself, then read the generation" there, at least one must see the other. */
        if (!atomic_compare_exchange_strong(&barrier->state, &seen, seen + ONE_GENERATION)) return STOPPED;
        if (atomic_load(&barrier->sleepers) > 0) wake_all(&barrier->state);
        return PASSED;
    }

    int outcome;
    for (uint32_t i = 0; i < spins; i++) {
        if ((outcome = look(barrier, seen)) != NOT_YET) return outcome;
        pause_core();
    }
    for (int i = 0; i < YIELDS; i++) {
        if ((outcome = look(barrier, seen)) != NOT_YET) return outcome;
        sched_yield();
    }
    while ((outcome = look(barrier, seen)) == NOT_YET) {
        atomic_fetch_add(&barrier->sleepers, 1);
        sleep_while(&barrier->state, seen);
        /* Relaxed: a count that is too high for a moment costs one needless wake-up. */
        atomic_fetch_sub_explicit(&barrier->sleepers, 1, memory_order_relaxed);
    }
    return outcome;
}

void corenet_barrier_abort(corenet_barrier *barrier) {
    atomic_fetch_or(&barrier->state, ABORTED);
    wake_all(&barrier->state); /* whatever `sleepers` says: this is rare, and must not depend on a dead process's count */
}

void corenet_barrier_reset(corenet_barrier *barrier) {
    atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&barrier->sleepers, 0, memory_order_relaxed);
    /* Release: whoever sees the bit cleared sees the counts cleared. The generation stays: it only ever moves on. */
    atomic_fetch_and_explicit(&barrier->state, ~(uint32_t)ABORTED, memory_order_release);
}
