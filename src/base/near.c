/* SPDX-License-Identifier: Apache-2.0 */
/* Suggestions for a misspelt name: names ordered by edit distance. Runs only for an error. */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "near.h"

enum { letters = 63, shown = 5 };

/* The Levenshtein distance of the first 63 letters. */
static int distance(const char *a, const char *b)
{
    int row[letters + 1];
    int n = (int)strnlen(b, letters);

    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; i <= letters && a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int above = row[j], best = diagonal + (a[i - 1] != b[j - 1]);
            best = best < above + 1 ? best : above + 1;
            best = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
            diagonal = above;
            row[j] = best;
        }
    }
    return row[n];
}

void sherd__near_names(char *out, size_t room, sherd__name_at at, void *of, const char *name)
{
    int last = -1, last_i = -1;
    size_t length = 0;
    const char *other;

    out[0] = 0;

    /* Each round takes the next one in the order of (distance, number). */
    for (int k = 0; k < shown; k++) {
        int best = INT_MAX, best_i = -1;
        for (int i = 0; (other = at(of, i)); i++) {
            int d = distance(name, other);
            bool comes_later = d > last || (d == last && i > last_i);
            if (comes_later && d < best) {
                best = d;
                best_i = i;
            }
        }
        if (best_i < 0)
            return;
        if (length < room)
            length += (size_t)snprintf(out + length, room - length, "%s%s", k ? ", " : "",
                                       at(of, best_i));
        last = best;
        last_i = best_i;
    }
}
