/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for what all ranks of a communicator do together, but no longer than SHERD_TIMEOUT. */
#include "carrier.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * Seconds that a round of a wait counts at most: if the job was stopped in it (Ctrl-Z, a debugger),
 * this rank has waited for nobody.
 */
static const double longest_round = 0.1;

double sherd__mpi_timeout(void)
{
    enum { USUAL = 600, MOST = 1000000 };
    const char *text = getenv("SHERD_TIMEOUT");
    char *end = NULL;
    long seconds = text ? strtol(text, &end, 10) : USUAL;

    /* As the world reads it (base/variable.h), which is not linked with this. */
    if (text && strcmp(text, "none") == 0)
        return HUGE_VAL;
    if (text && (end == text || *end || seconds < 0 || seconds > MOST))
        return USUAL;
    return seconds ? (double)seconds : HUGE_VAL;
}

int sherd__mpi_await(MPI_Request *request)
{
    const struct timespec nap = {0, 50000};
    double last = MPI_Wtime(), waited = 0, most = sherd__mpi_timeout();
    int done = 0, error;

    while (!(error = MPI_Test(request, &done, MPI_STATUS_IGNORE)) && !done) {
        double now = MPI_Wtime();
        waited += now - last < longest_round ? now - last : longest_round;
        last = now;
        if (waited > most)
            return SHERD__TIMED_OUT;
        if (waited > 0.01)
            nanosleep(&nap, NULL);
    }
    return error;
}
