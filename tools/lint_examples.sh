#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The examples in the comments of the public headers compile. An example is an indented block in which a line ends with
# a semicolon; what it does not declare itself is declared here. That of sherd/mpi.h only where there is MPI.
cd "$(dirname "$0")/.." || exit 2
mpi=
for folder in $(mpicc -show 2>/dev/null); do
    case $folder in -I*) mpi="$mpi -isystem ${folder#-I}" ;; esac
done
headers=$(ls include/sherd/*.h)
[ "$mpi" ] || headers=$(ls include/sherd/*.h | grep -v mpi.h)
{
    echo '#include <assert.h>
#include <sherd.h>
#include <stdio.h>
extern int argc;
extern char **argv;
extern sherd_world *world;
extern const sherd_mesh *mesh, *other;
extern const sherd_layout *from, *to, *layout;
extern sherd_module *model, *average, *first, *second, *self;
extern sherd_args *in, *out;
extern sherd_optimizer *optimizer;
extern sherd_generator generator;
extern sherd_tensor *a, *b, *k, *v, *q, *t, *w, *x, *y, *w1, *w2, *loss, *plain, *field, *next, *logits;
extern sherd_tensor *choice, *scores, *cache_k, *cache_v, *pool_k, *pool_v, *table, *positions;
extern sherd_tensor *age, *income, *shard, *position, *velocity, *species, *edges, *energy;
extern sherd_tensor *nodes, *score, *target, *sequence, *weight, *bias;
extern double rate, norm, least;
extern int64_t step, stop, got_signal, blocks;
sherd_tensor *forces(sherd_tensor *), *loss_of(sherd_tensor *);
sherd_tensor *residual(void *);
sherd_tensor *loss_of_batch(void *, int64_t, const sherd_args *);
void feed(void *, int, int64_t, sherd_args *);
void scale(sherd_module *, const sherd_args *, sherd_args *);
int skip_this_step(sherd_world *);
bool next_request(double);
void take_step(sherd_world *, int64_t);'
    [ -z "$mpi" ] || echo '#include <sherd/mpi.h>'
    awk '
function flush() {
    if (code) printf "int example_%d(void);\nint example_%d(void)\n{\n#line %d \"%s\"\n%sreturn 0;\n}\n", ++n, n, start, file, text
    text = ""; code = 0
}
FNR == 1 { flush() }
/^ [*]     +[^ ]/ && !tag {
    if (text == "") { start = FNR; file = FILENAME }
    text = text substr($0, 8) "\n"
    if ($0 ~ /;[ ]*(\/\/.*)?$/) code = 1
    next
}
{ flush(); tag = /^ [*] @/ || (tag && /^ [*]  /) }
END { flush() }' $headers
} | ${CC:-cc} -std=c99 -Wall -Wextra -Wno-unused-variable -Wno-unused-but-set-variable -Werror -fsyntax-only -Iinclude $mpi -x c -
