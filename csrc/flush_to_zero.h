/* Flush-to-zero: results and operands too small for a normal float32 count as 0. The why: flush_to_zero.c. */
#ifndef CORENET_FLUSH_TO_ZERO_H
#define CORENET_FLUSH_TO_ZERO_H

/* Switch it on (1) or off (0) for the calling thread only; nothing happens on a machine that has no such switch. */
void corenet_set_flush_to_zero(int on);

/* 1 if the calling thread flushes to zero, else 0. */
int corenet_flush_to_zero(void);

#endif
