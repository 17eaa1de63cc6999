/* A worker must not outlive the process that started it. */
#ifndef CORENET_PARENT_H
#define CORENET_PARENT_H

/* Ask the kernel to kill this process when `parent` (a process id) dies, and die now if it is dead already.
 * Returns 0, or -1 where the kernel cannot do that (anything but Linux). */
int corenet_die_with_parent(int parent);

#endif
