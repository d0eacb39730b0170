/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heat example as one writes it by hand with MPI: mpirun -n RANKS heat_mpi [its options, but
 * for files and cuts]. What lies between the ranks is written here, in place of
 * examples/heat/field.c; options, waves and the arithmetic of a piece are the example's own, so
 * checksums must be equal. Persistent sends of each face, in their datatypes, travel while the
 * inside is computed. Built where MPI is found; bench/compare_heat.py runs both in turns.
 */
#include <mpi.h>

#include "cells.h"
#include "timing.h"

/* Layers of an array along a dim. */
enum { GHOST_BEFORE, FACE_BEFORE, FACE_BEHIND, GHOST_BEHIND, PARTS };

/* ---- the field ------------------------------------------------------------------------------- */

typedef struct field {
    MPI_Comm grid;
    cells cells;
    double *u[2]; /* they take turns */
    MPI_Datatype part[DIMS][PARTS];
    MPI_Request request[2][DIMS * PARTS];
    int before[DIMS], behind[DIMS]; /* neighbours, or MPI_PROC_NULL */
    int64_t steps;
} field;

/* The piece of this rank, and a layer around it. False: it is empty. */
static bool field_cut(field *f, const heat_options *o)
{
    int rank, at[DIMS];
    bool good = true;

    MPI_Comm_rank(f->grid, &rank);
    MPI_Cart_coords(f->grid, rank, DIMS, at);
    f->cells.all.ndim = f->cells.piece.ndim = DIMS;
    for (int d = 0; d < DIMS; d++) {
        int64_t n = o->size[d], chunk = (n + o->mesh[d] - 1) / o->mesh[d], lo = at[d] * chunk;
        int64_t count = lo + chunk < n ? chunk : n - lo;
        good = good && count > 0;
        f->cells.piece.offset[d] = lo;
        f->cells.piece.size[d] = count;
        f->cells.all.offset[d] = lo - 1;
        f->cells.all.size[d] = count + 2;
        MPI_Cart_shift(f->grid, d, 1, &f->before[d], &f->behind[d]);
    }
    return good;
}

/* A layer of an array without its edges, which a step does not need. */
static void make_part(field *f, int d, int part)
{
    int n = (int)f->cells.piece.size[d], start[DIMS], size[DIMS], all[DIMS];
    const int along[PARTS] = {0, 1, n, n + 1};

    for (int i = 0; i < DIMS; i++) {
        all[i] = (int)f->cells.all.size[i];
        size[i] = i == d ? 1 : (int)f->cells.piece.size[i];
        start[i] = i == d ? along[part] : 1;
    }
    MPI_Type_create_subarray(DIMS, all, size, start, MPI_ORDER_C, MPI_DOUBLE, &f->part[d][part]);
    MPI_Type_commit(&f->part[d][part]);
}

static void make_requests(field *f, int which, int d)
{
    MPI_Request *out = &f->request[which][d * PARTS];
    const MPI_Datatype *part = f->part[d];
    void *u = f->u[which];

    MPI_Recv_init(u, 1, part[GHOST_BEFORE], f->before[d], 2 * d + 1, f->grid, &out[0]);
    MPI_Recv_init(u, 1, part[GHOST_BEHIND], f->behind[d], 2 * d, f->grid, &out[1]);
    MPI_Send_init(u, 1, part[FACE_BEFORE], f->before[d], 2 * d, f->grid, &out[2]);
    MPI_Send_init(u, 1, part[FACE_BEHIND], f->behind[d], 2 * d + 1, f->grid, &out[3]);
}

/* The first state. False: an empty piece, or no memory. */
static bool field_create(field *f, const waves *w, const heat_options *o)
{
    const int around = o->border == PERIODIC, periods[DIMS] = {around, around, around};
    const int mesh[DIMS] = {(int)o->mesh[0], (int)o->mesh[1], (int)o->mesh[2]};

    *f = (field){.cells.waves = w};
    MPI_Cart_create(MPI_COMM_WORLD, DIMS, mesh, periods, 0, &f->grid);
    if (!field_cut(f, o))
        return false;
    const int64_t *n = f->cells.all.size;
    for (int i = 0; i < 2; i++)
        if (!(f->u[i] = calloc((size_t)(n[0] * n[1] * n[2]), sizeof(double))))
            return false;
    for (int d = 0; d < DIMS; d++)
        for (int part = 0; part < PARTS; part++)
            make_part(f, d, part);
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < DIMS; d++)
            make_requests(f, i, d);
    return cells_set(&f->cells, f->u[0], 0);
}

static void field_destroy(field *f)
{
    for (int i = 0; i < DIMS * PARTS; i++) {
        MPI_Request_free(&f->request[0][i]);
        MPI_Request_free(&f->request[1][i]);
        MPI_Type_free(&f->part[i / PARTS][i % PARTS]);
    }
    free(f->u[0]);
    free(f->u[1]);
    MPI_Comm_free(&f->grid);
}

/* Nothing passes an insulated wall: the layer behind it is as the one before. */
static void copy_walls(const field *f, double *u)
{
    if (f->cells.waves->border != INSULATED)
        return;
    for (int d = 0; d < DIMS; d++)
        for (int end = 0; end < 2; end++) {
            MPI_Datatype from = f->part[d][end ? FACE_BEHIND : FACE_BEFORE];
            MPI_Datatype to = f->part[d][end ? GHOST_BEHIND : GHOST_BEFORE];
            if ((end ? f->behind[d] : f->before[d]) == MPI_PROC_NULL)
                MPI_Sendrecv(u, 1, from, 0, 0, u, 1, to, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        }
}

static void field_step(field *f)
{
    sherd_box inside = cells_inside(&f->cells);
    int which = (int)(f->steps % 2);
    double *now = f->u[which], *next = f->u[1 - which];

    MPI_Startall(DIMS * PARTS, f->request[which]);
    cells_step(&f->cells, &inside, next, now);
    MPI_Waitall(DIMS * PARTS, f->request[which], MPI_STATUSES_IGNORE);
    copy_walls(f, now);
    cells_step_rim(&f->cells, next, now);
    f->steps++;
}

/* Figures of the whole field, on rank 0. */
static bool field_measure(figures *out, const field *f)
{
    figures mine;
    bool good = cells_measure(&mine, &f->cells, f->u[f->steps % 2], f->steps);

    *out = (figures){.error = 0};
    MPI_Reduce(&mine.error, &out->error, 2, MPI_DOUBLE, MPI_MAX, 0, f->grid); /* and the height */
    MPI_Reduce(&mine.checksum, &out->checksum, 1, MPI_UINT64_T, MPI_SUM, 0, f->grid);
    return good;
}

/* ---- the run --------------------------------------------------------------------------------- */

static void report(const field *f, const heat_options *o, double seconds, const figures *came)
{
    double points = (double)o->size[0] * (double)o->size[1] * (double)o->size[2];

    printf("ranks    MPI, mesh x=%lld,y=%lld,z=%lld\n", (long long)o->mesh[0],
           (long long)o->mesh[1], (long long)o->mesh[2]);
    if (f->steps)
        printf("speed    %.3g ms a step, %.3g million points a second\n",
               1e3 * seconds / (double)f->steps, 1e-6 * points * (double)f->steps / seconds);
    printf("height   %.3g of %.3g is left\n", came->height, waves_height(f->cells.waves));
    printf("error    %.3g at most, bound %.3g\n", came->error,
           waves_bound(f->cells.waves, f->steps));
    printf("checksum %016llx\n", (unsigned long long)came->checksum);
}

static bool run(const heat_options *o, int me)
{
    figures came;
    waves w;
    field f;

    waves_make(&w, o);
    if (!field_create(&f, &w, o)) {
        fprintf(stderr, "heat_mpi: rank %d has no points, or no memory\n", me);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = seconds();
    while (f.steps < o->steps)
        field_step(&f);
    MPI_Barrier(MPI_COMM_WORLD);
    double took = seconds() - begin;
    bool good = field_measure(&came, &f);
    if (me == 0) {
        report(&f, o, took, &came);
        good = good && came.error <= waves_bound(&w, f.steps);
    }
    field_destroy(&f);
    return good;
}

int main(int argc, char **argv)
{
    char error[LINE_BYTES];
    heat_options o;
    int me, ranks, exit_status = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (!options_parse(&o, argc, argv, error) || !options_fit(&o, ranks, error)) {
        if (me == 0)
            fprintf(stderr, "heat_mpi: %s\n", error);
        exit_status = 2;
    } else if (!run(&o, me)) {
        exit_status = 1;
    }
    MPI_Finalize();
    return exit_status;
}
