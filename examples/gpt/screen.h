/* SPDX-License-Identifier: Apache-2.0 */
/* What people see. One rank calls these. */
#ifndef GPT_SCREEN_H
#define GPT_SCREEN_H

#include "figures.h"

/* What runs where. */
void screen_begin(const trainer *t, const figures *f);

typedef struct progress {
    bool terminal;       /* the line is drawn again and again; else plain lines, ten in all */
    bool open;           /* a line is on the terminal that does not end */
    double begin, drawn; /* times */
} progress;

progress progress_begin(void);
/* After each step. */
void progress_step(progress *p, const trainer *t, const figures *f);
void progress_end(progress *p);

/* What it cost, what came out. */
void screen_end(const trainer *t, const figures *f);
void screen_sample(const unsigned char *prompt, int64_t prompt_count, const unsigned char *bytes,
                   int64_t count);
void screen_compare(const trainer *t, const figures *f);

#endif
