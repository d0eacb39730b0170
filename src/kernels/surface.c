/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distances to a surface: see surface.h. Of a triangle the nearest point is inside of it, if the
 * query's projection is, and else on one of its edges; so triangles without an area need no care. A
 * box is passed over if it is farther away than what was found. What is found depends on the
 * surface and the query alone: every rank arranges the same surface in the same way.
 */
#include "surface.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/hash.h"

typedef struct vector {
    double x, y, z;
} vector;

static vector at(const double *list, int64_t i)
{
    return (vector){list[3 * i], list[3 * i + 1], list[3 * i + 2]};
}

static vector minus(vector a, vector b)
{
    return (vector){a.x - b.x, a.y - b.y, a.z - b.z};
}

static double dot(vector a, vector b)
{
    return a.x * b.x + a.y * b.y + a.z * b.z;
}

static vector cross(vector a, vector b)
{
    return (vector){a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

/* list[i] += factor a */
static void add(double *list, int64_t i, double factor, vector a)
{
    list[3 * i] += factor * a.x;
    list[3 * i + 1] += factor * a.y;
    list[3 * i + 2] += factor * a.z;
}

/* ---- normals --------------------------------------------------------------------------------- */

int64_t sherd__surface_table(int64_t vertices, int64_t n)
{
    int64_t most = vertices > 3 * n ? vertices : 3 * n, places = 4;

    while (places < 2 * most)
        places *= 2;
    return places;
}

/* Vertices at one place are one: files often have those of each triangle. */
static void find_same(const sherd__surface *s, uint64_t places)
{
    for (int64_t i = 0; i < s->vertices; i++) {
        const double key[3] = {s->x[3 * i] + 0, s->x[3 * i + 1] + 0, s->x[3 * i + 2] + 0}; /* -0 */
        uint64_t place = sherd__hash_bytes(3, key, sizeof key);
        int64_t first = -1; /* three times as many coordinates are no i32 */
        for (;; place++) {
            first = s->table[place & (places - 1)];
            if (first < 0 || (s->x[3 * first] == key[0] && s->x[3 * first + 1] == key[1] &&
                              s->x[3 * first + 2] == key[2]))
                break;
        }
        if (first < 0)
            s->table[place & (places - 1)] = (int32_t)i;
        s->same[i] = (int32_t)(first < 0 ? i : first);
    }
}

/* The ends of edge e, the smaller one first. Edge k of a triangle is from corner k to the next. */
static void ends_of(const sherd__surface *s, int64_t e, int32_t *low, int32_t *high)
{
    int32_t a = s->same[s->corner[e]], b = s->same[s->corner[e / 3 * 3 + (e + 1) % 3]];

    *low = a < b ? a : b;
    *high = a < b ? b : a;
}

static void find_edges(const sherd__surface *s, uint64_t places)
{
    for (int64_t e = 0; e < 3 * s->n; e++) {
        int32_t key[2], other[2], first = -1;
        ends_of(s, e, &key[0], &key[1]);
        uint64_t place = sherd__hash_bytes(5, key, sizeof key);
        for (;; place++) {
            first = s->table[place & (places - 1)];
            if (first < 0)
                break;
            ends_of(s, first, &other[0], &other[1]);
            if (key[0] == other[0] && key[1] == other[1])
                break;
        }
        if (first < 0)
            s->table[place & (places - 1)] = (int32_t)e;
        s->edge[e] = first < 0 ? (int32_t)e : first;
    }
}

static vector corner_of(const sherd__surface *s, int64_t triangle, int64_t k)
{
    return at(s->x, s->corner[3 * triangle + k % 3]);
}

/* Not of length 1; 0 of a triangle without an area. */
static vector normal_of(const sherd__surface *s, int64_t triangle)
{
    vector a = corner_of(s, triangle, 0);

    return cross(minus(corner_of(s, triangle, 1), a), minus(corner_of(s, triangle, 2), a));
}

static void add_normals(const sherd__surface *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        vector n = normal_of(s, i);
        double length = sqrt(dot(n, n));
        for (int64_t k = 0; k < 3 && length > 0; k++) {
            vector here = corner_of(s, i, k), p = minus(corner_of(s, i, k + 1), here);
            vector q = minus(corner_of(s, i, k + 2), here);
            double angle = atan2(length, dot(p, q));
            add(s->across, s->edge[3 * i + k], 1 / length, n);
            add(s->around, s->same[s->corner[3 * i + k]], angle / length, n);
        }
    }
}

/* ---- the tree -------------------------------------------------------------------------------- */

/* Balls around the middles, a little too large, so that no rounding leaves a triangle out. */
static void find_balls(const sherd__surface *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        double most = 0;
        for (int64_t k = 0; k < 3; k++) {
            vector to = minus(corner_of(s, s->tree.id[i], k), at(s->tree.x, i));
            most = fmax(most, dot(to, to));
        }
        s->radius[i] = sqrt(most) * (1 + 0x1p-40);
    }
}

/* Boxes around triangles take the place of those around their middles. */
static void find_boxes(const sherd__surface *s, int64_t node, int level, int64_t lo, int64_t hi)
{
    double *box = s->tree.box + 6 * node;
    int64_t mid = lo + (hi - lo) / 2;

    for (int d = 0; d < 3; d++) {
        box[d] = INFINITY;
        box[3 + d] = -INFINITY;
    }
    if (level < s->tree.levels) {
        find_boxes(s, 2 * node, level + 1, lo, mid);
        find_boxes(s, 2 * node + 1, level + 1, mid, hi);
        for (int d = 0; d < 3; d++) {
            box[d] = fmin(box[6 * node + d], box[6 * node + 6 + d]);
            box[3 + d] = fmax(box[6 * node + 3 + d], box[6 * node + 9 + d]);
        }
        return;
    }
    for (int64_t i = 3 * lo; i < 3 * hi; i++) {
        const double *x = s->x + 3 * (int64_t)s->corner[3 * (int64_t)s->tree.id[i / 3] + i % 3];
        for (int d = 0; d < 3; d++) {
            box[d] = fmin(box[d], x[d]);
            box[3 + d] = fmax(box[3 + d], x[d]);
        }
    }
}

void sherd__surface_arrange(sherd__surface *s)
{
    uint64_t places = (uint64_t)sherd__surface_table(s->vertices, s->n);

    memset(s->table, -1, places * sizeof *s->table);
    find_same(s, places);
    memset(s->table, -1, places * sizeof *s->table);
    find_edges(s, places);
    memset(s->across, 0, (size_t)s->n * 9 * sizeof *s->across);
    memset(s->around, 0, (size_t)s->vertices * 3 * sizeof *s->around);
    add_normals(s);
    for (int64_t i = 0; i < s->n; i++) {
        s->tree.id[i] = (int32_t)i;
        for (int d = 0; d < 3; d++) {
            double sum = 0;
            for (int k = 0; k < 3; k++)
                sum += s->x[3 * (int64_t)s->corner[3 * i + k] + d];
            s->tree.x[3 * i + d] = sum / 3;
        }
    }
    s->tree.n = s->n;
    s->tree.d = 3;
    sherd__cloud_arrange(&s->tree);
    find_balls(s);
    find_boxes(s, 1, 0, 0, s->n);
}

/* ---- the nearest point ----------------------------------------------------------------------- */

/* What is nearest so far: on a triangle, by weights of its corners. */
typedef struct found {
    double square, weight[3], reach; /* the root of the square, a little more */
    int64_t triangle;                /* -1: none */
} found;

/* From a to b: how far along it the nearest point is, from 0 to 1, and the square to there. */
static double along(vector p, vector a, vector b, double *square)
{
    vector e = minus(b, a), to = minus(p, a);
    double length = dot(e, e), t = length > 0 ? dot(to, e) / length : 0;

    t = t > 0 ? t < 1 ? t : 1 : 0;
    vector rest = t < 1 ? (vector){to.x - t * e.x, to.y - t * e.y, to.z - t * e.z} : minus(p, b);
    *square = dot(rest, rest);
    return t;
}

static found nearest_in(const sherd__surface *s, int64_t triangle, vector p)
{
    vector a = corner_of(s, triangle, 0), b = corner_of(s, triangle, 1);
    vector c = corner_of(s, triangle, 2), pa = minus(a, p), pb = minus(b, p), pc = minus(c, p);
    vector n = normal_of(s, triangle);
    double area = dot(n, n), u = dot(cross(pb, pc), n), v = dot(cross(pc, pa), n);
    double w = dot(cross(pa, pb), n);
    found f = {INFINITY, {0, 0, 0}, INFINITY, triangle};

    if (area > 0 && u > 0 && v > 0 && w > 0) {
        double height = dot(pa, n), sum = u + v + w;
        f = (found){height * height / area, {u / sum, v / sum, w / sum}, INFINITY, triangle};
        return f;
    }
    for (int64_t k = 0; k < 3; k++) {
        double square,
            t = along(p, corner_of(s, triangle, k), corner_of(s, triangle, k + 1), &square);
        if (!(square < f.square))
            continue;
        f = (found){square, {0, 0, 0}, INFINITY, triangle};
        f.weight[k] = 1 - t;
        f.weight[(k + 1) % 3] = t;
    }
    return f;
}

static double square_to(const double *box, vector p)
{
    const double x[3] = {p.x, p.y, p.z};
    double sum = 0;

    for (int d = 0; d < 3; d++) {
        double off = x[d] < box[d] ? box[d] - x[d] : x[d] > box[3 + d] ? x[d] - box[3 + d] : 0;
        sum += off * off;
    }
    return sum;
}

static void look(const sherd__surface *s, vector p, found *best, int64_t node, int level,
                 int64_t lo, int64_t hi)
{
    const double *box = s->tree.box;
    int64_t mid = lo + (hi - lo) / 2;

    for (int64_t i = lo; level == s->tree.levels && i < hi; i++) {
        vector to = minus(p, at(s->tree.x, i));
        double far = best->reach + s->radius[i];
        if (dot(to, to) > far * far)
            continue;
        found f = nearest_in(s, s->tree.id[i], p);
        if (f.square > best->square || !(f.square < INFINITY) ||
            (f.square == best->square && f.triangle > best->triangle))
            continue;
        *best = f;
        best->reach = sqrt(f.square) * (1 + 0x1p-40);
    }
    if (level == s->tree.levels)
        return;
    double left = square_to(box + 12 * node, p), right = square_to(box + 12 * node + 6, p);
    for (int turn = 0; turn < 2; turn++) {
        bool goes_left = (left <= right) == (turn == 0);
        if ((goes_left ? left : right) > best->square)
            continue;
        if (goes_left)
            look(s, p, best, 2 * node, level + 1, lo, mid);
        else
            look(s, p, best, 2 * node + 1, level + 1, mid, hi);
    }
}

/* From the nearest point to the query, times a normal there. */
static double side_of(const sherd__surface *s, const found *f, vector p)
{
    vector to = p, n = normal_of(s, f->triangle);
    const int32_t *corner = s->corner + 3 * f->triangle;
    int zero = 0, last = 0;

    for (int k = 0; k < 3; k++) {
        vector c = at(s->x, corner[k]);
        to = (vector){to.x - f->weight[k] * c.x, to.y - f->weight[k] * c.y,
                      to.z - f->weight[k] * c.z};
        zero += f->weight[k] == 0;
        last = f->weight[k] == 0 ? last : k;
    }
    if (zero == 0)
        return dot(minus(p, at(s->x, corner[0])), n);
    if (zero == 2)
        return dot(to, at(s->around, s->same[corner[last]]));
    int first = f->weight[(last + 1) % 3] != 0 ? last : (last + 2) % 3; /* the edge begins there */
    return dot(to, at(s->across, s->edge[3 * f->triangle + first]));
}

void sherd__surface_find(const sherd__surface *s, int64_t m, const double *query, double *distance,
                         int32_t *triangle, int32_t *corner, double *weight)
{
    for (int64_t i = 0; i < m; i++) {
        vector p = at(query, i);
        found best = {INFINITY, {1, 0, 0}, INFINITY, -1};
        if (isfinite(p.x) && isfinite(p.y) && isfinite(p.z))
            look(s, p, &best, 1, 0, 0, s->n);
        bool is_there = best.triangle >= 0;
        distance[i] = is_there ? sqrt(best.square) : NAN;
        if (is_there && side_of(s, &best, p) < 0)
            distance[i] = -distance[i];
        triangle[i] = (int32_t)best.triangle;
        int used = 0;
        for (int zero = 0; zero < 2; zero++)
            for (int k = 0; k < 3; k++) {
                if ((best.weight[k] == 0) != zero)
                    continue;
                corner[3 * i + used] = is_there ? s->corner[3 * best.triangle + k] : 0;
                weight[3 * i + used++] = best.weight[k];
            }
    }
}
