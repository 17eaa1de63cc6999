/* A barrier for n processes that share memory, which another process can abort. The protocol: barrier.c.
 *
 * csrc/build_native.py reads this file: what is declared here is what Python sees.
 */
#ifndef CORENET_BARRIER_H
#define CORENET_BARRIER_H

#include <stddef.h>
#include <stdint.h>

typedef struct corenet_barrier corenet_barrier;

/* Bytes a barrier occupies. It must start at a multiple of 64; zeroed memory is a barrier ready for use. */
size_t corenet_barrier_size(void);

/* Return 0 once all n have called this, or 1 if the barrier was aborted first.
 * Looks `spins` times before it gives the core away: 0 where processes outnumber cores. */
int corenet_barrier_wait(corenet_barrier *barrier, uint32_t n, uint32_t spins);

/* Every wait that has not completed returns 1, now and until corenet_barrier_reset. */
void corenet_barrier_abort(corenet_barrier *barrier);

/* Make an aborted barrier usable again. Only while no live process is inside corenet_barrier_wait. */
void corenet_barrier_reset(corenet_barrier *barrier);

#endif
