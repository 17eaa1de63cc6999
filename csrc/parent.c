/* Linux delivers a signal of one's choice when the parent dies, even if the parent was killed with SIGKILL and had no
 * chance to clean up. Strictly, when the *thread* that started this process ends: start workers from a thread that
 * stays.
 */
#include "parent.h"

#ifdef __linux__

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

int corenet_die_with_parent(int parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return -1;
    /* It may have died before the line above. Then no signal comes, and somebody else has adopted this process. */
    if (getppid() != parent) raise(SIGKILL);
    return 0;
}

#else

int corenet_die_with_parent(int parent) {
    (void)parent;
    return -1;
}

#endif
