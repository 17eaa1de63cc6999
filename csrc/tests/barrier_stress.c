/* The barrier under the sanitizers, with threads in the place of processes. From the project's root:
 *
 *   for s in thread address,undefined; do
 *       gcc -std=c11 -O1 -g -Wall -Wextra -Werror -fsanitize=$s -fno-sanitize-recover=all -Icsrc \
 *           csrc/tests/barrier_stress.c csrc/barrier.c -o /tmp/barrier_stress -pthread && /tmp/barrier_stress || break
 *   done
 *
 * The slots below are plain memory: if the barrier did not order them, the thread sanitizer would call it a race.
 */
#define _GNU_SOURCE
#include "barrier.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_THREADS = 4, ROUNDS = 3000, ABORTS = 100 };

static corenet_barrier *barrier;
static uint32_t n, spins;
static long slots[2][MAX_THREADS]; /* [round & 1]: two sets, so one barrier a round is enough */
static long passed[MAX_THREADS];   /* rounds completed by each */

static void check(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "FAILED: %s (n=%u, spins=%u)\n", what, n, spins);
    exit(1);
}

/* Do `limit` rounds, or go on until aborted. */
static void rounds(long me, long limit) {
    for (long round = 0; round < limit; round++) {
        slots[round & 1][me] = round;
        if (corenet_barrier_wait(barrier, n, spins)) return;
        passed[me] = round + 1;
        for (uint32_t i = 0; i < n; i++) check(slots[round & 1][i] == round, "somebody passed early");
    }
}

static void *fixed(void *me) { return rounds((long)me, ROUNDS), NULL; }
static void *endless(void *me) { return rounds((long)me, 1L << 40), NULL; }

static void nap(long nanoseconds) { nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL); }

static void run(void *(*body)(void *), long abort_after_ns) {
    pthread_t threads[MAX_THREADS];
    memset(slots, 0, sizeof slots);
    memset(passed, 0, sizeof passed);
    for (long i = 0; i < (long)n; i++) check(!pthread_create(&threads[i], NULL, body, (void *)i), "pthread_create");
    if (abort_after_ns) {
        nap(abort_after_ns);
        corenet_barrier_abort(barrier);
    }
    for (uint32_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

int main(void) {
    barrier = aligned_alloc(64, corenet_barrier_size());
    check(barrier != NULL, "aligned_alloc");
    memset(barrier, 0, corenet_barrier_size());
    srand(1);
    for (n = 1; n <= MAX_THREADS; n++) {
        for (spins = 0; spins <= 1000; spins += 500) {
            run(fixed, 0);
            for (uint32_t i = 0; i < n; i++) check(passed[i] == ROUNDS, "a round is missing");
            for (int i = 0; i < ABORTS; i++) {
                run(endless, 1 + rand() % 500000);
                for (uint32_t j = 1; j < n; j++) check(passed[j] == passed[0], "a round passed by some, not by all");
                check(corenet_barrier_wait(barrier, n, spins) == 1, "an aborted barrier let somebody in");
                corenet_barrier_reset(barrier);
            }
        }
    }
    free(barrier);
    puts("barrier_stress: passed");
    return 0;
}
