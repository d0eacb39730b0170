/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Index strings into rules: "...k,nk,n->...n" for the operands of one call becomes one letter per
 * dim, and sizes of letters become the shapes of results. The dims of "..." get capital letters,
 * aligned at the last one. One pass over the text, about a tenth of a microsecond; not needed for a
 * call whose answer is kept (answers.c), nor where the operator's last call had operands of the
 * same shapes.
 */
#include "door.h"
#include "layout/shape.h"

#include <string.h>

enum { LETTERS = 'z' - 'A' + 1 };

/* One part of the text, between separators. */
typedef struct part {
    const char *at;
    int length;
    int named; /* letters besides "..." */
    bool dots;
} part;

typedef struct compiler {
    sherd__run *run;
    part part[SHERD_MAX_OPERANDS];
    int dots; /* dims that "..." stands for, of the operand that has most */
    int64_t dot_size[SHERD_MAX_DIMS];
    uint64_t known; /* bits of letters that have a size */
    int64_t size[LETTERS];
    short operand[LETTERS], dim[LETTERS]; /* where it was seen first */
    bool described;                       /* a size of a result is describe's, and no letter's */
} compiler;

static part next_part(const char **text)
{
    part p = {.at = *text};

    for (const char *c = *text; *c && *c != ',' && *c != '-'; c++) {
        p.length++;
        if (*c == '.')
            p.dots = true;
        else
            p.named++;
    }
    *text += p.length;
    if (**text == ',')
        ++*text;
    return p;
}

/* ---- operands ------------------------------------------------------------------------------- */

static const char *name_of(const compiler *c, int i)
{
    return sherd__slot(c->run->call.op, i)->name;
}

static int shape_of(const compiler *c, int i, const int64_t **shape)
{
    const sherd_tensor *t = c->run->call.in[i];
    const sherd_layout *like = !t && c->run->like ? c->run->like[i] : NULL;

    *shape = t ? t->shape : like ? like->spec.shape : NULL;
    return t ? t->ndim : like ? like->spec.ndim : -1;
}

/* Read the parts of the operands, and how many dims "..." stands for. */
static const char *read_operands(compiler *c, const char **at)
{
    sherd_call *call = &c->run->call;
    const int64_t *shape;

    for (int i = 0; i < call->operands; i++) {
        part *p = &c->part[i];
        bool again = i && sherd__slot(call->op, i) == sherd__slot(call->op, i - 1);
        *p = again && **at == '-' ? c->part[i - 1]
                                  : next_part(at); /* a repeated one is named once */
        int ndim = shape_of(c, i, &shape), here = ndim - p->named;
        if (ndim < 0)
            continue;
        if (here < 0 || (here > 0 && !p->dots))
            return sherd_call_reason(call, "%s must have %s%d dim%s", name_of(c, i),
                                     p->dots ? "at least " : "", p->named,
                                     p->named == 1 ? "" : "s");
        if (p->dots && c->dots >= 0 && here != c->dots && !call->op->broadcasts)
            return sherd_call_reason(call, "%s must have %d dims", name_of(c, i),
                                     c->dots + p->named);
        if (p->dots && here > c->dots)
            c->dots = here;
    }
    return NULL;
}

/* The sizes that the dims of "..." broadcast to, or that they all must have. */
static const char *broadcast(compiler *c)
{
    sherd_call *call = &c->run->call;
    const int64_t *shape;

    for (int d = 0; d < c->dots; d++)
        c->dot_size[d] = 1;
    for (int i = 0; i < call->operands; i++) {
        int ndim = shape_of(c, i, &shape), here = ndim - c->part[i].named;
        if (ndim < 0 || !c->part[i].dots)
            continue;
        int first = (int)(strchr(c->part[i].at, '.') - c->part[i].at), skipped = c->dots - here;
        for (int d = 0; d < here; d++) {
            int64_t *size = &c->dot_size[skipped + d], n = shape[first + d];
            if (*size == 1)
                *size = n;
            else if (n != 1 && n != *size && call->op->broadcasts)
                return "shapes do not broadcast";
        }
    }
    return NULL;
}

/* Dim d of operand i has this letter: set or compare its size. */
static const char *meet(compiler *c, char letter, int i, int d, int64_t n)
{
    int at = letter - 'A';

    if (!(c->known >> at & 1)) {
        c->known |= UINT64_C(1) << at;
        c->size[at] = n;
        c->operand[at] = (short)i;
        c->dim[at] = (short)d;
        return NULL;
    }
    if (c->size[at] == n)
        return NULL;
    return sherd_call_reason(
        &c->run->call, "dim %d of %s is %lld, dim %d of %s is %lld: they must be equal", c->dim[at],
        name_of(c, c->operand[at]), (long long)c->size[at], d, name_of(c, i), (long long)n);
}

static const char *write_operand(compiler *c, int i)
{
    const part *p = &c->part[i];
    char *label = c->run->rule.operand[i];
    const int64_t *shape;
    const char *reason = NULL;
    int ndim = shape_of(c, i, &shape), n = 0, skipped = c->dots - (ndim - p->named);

    memset(label, 0, SHERD_MAX_DIMS + 1);
    for (int k = 0; ndim >= 0 && k < p->length && !reason; k++) {
        if (p->at[k] == '*' || p->at[k] == '1') {
            if (p->at[k] == '1' && shape[n] != 1)
                return sherd_call_reason(&c->run->call, "dim %d of %s must have size 1", n,
                                         name_of(c, i));
            label[n++] = p->at[k];
        } else if (p->at[k] != '.') {
            reason = meet(c, p->at[k], i, n, shape[n]);
            label[n++] = p->at[k];
        } else {
            for (int d = skipped; d < c->dots && !reason; d++, n++) {
                bool stretched = c->run->call.op->broadcasts && shape[n] != c->dot_size[d];
                label[n] = stretched ? '1' : (char)('A' + d);
                reason = stretched ? NULL : meet(c, label[n], i, n, shape[n]);
            }
            k += 2;
        }
    }
    return reason;
}

/* ---- results -------------------------------------------------------------------------------- */

static const char *write_result(compiler *c, int j, const part *p)
{
    sherd_call *call = &c->run->call;
    char *label = c->run->rule.result[j];
    int n = 0;

    memset(label, 0, SHERD_MAX_DIMS + 1);
    if (p->named + (p->dots ? c->dots : 0) > SHERD_MAX_DIMS)
        return sherd_call_reason(call, "the result would have more than %d dims", SHERD_MAX_DIMS);
    for (int k = 0; k < p->length; k++) {
        if (p->at[k] != '.') {
            label[n++] = p->at[k];
            continue;
        }
        for (int d = 0; d < c->dots; d++)
            label[n++] = (char)('A' + d);
        k += 2;
    }
    for (int d = 0; d < n; d++) {
        int at = label[d] - 'A';
        if (label[d] == '1')
            call->shape[j][d] = 1;
        else if (at >= 0 && c->known >> at & 1)
            call->shape[j][d] = c->size[at];
        else if (label[d] != '*' && label[d] <= 'Z')
            call->shape[j][d] = c->dot_size[at]; /* all operands are stretched there */
        else if (call->shape[j][d] < 0)          /* else describe has set it */
            return sherd_call_reason(call, "nothing says the size of dim %d of %s", d,
                                     call->op->result[j].name);
        else
            c->described = true;
    }
    return NULL;
}

/* Whether each part is "..." (a part without dots is a scalar, or has letters). */
static bool all_dots(const char *text)
{
    while (text[0] == '.' && text[1] == '.' && text[2] == '.') {
        text += 3;
        if (!*text)
            return true;
        text += text[0] == ',' ? 1 : text[0] == '-' && text[1] == '>' ? 2 : 0;
    }
    return false;
}

/*
 * The most frequent case by far: "..." everywhere, and operands of one shape. Only one label to
 * expand. False: not this case.
 */
static bool compile_alike(sherd__run *run, const char *text)
{
    sherd_call *call = &run->call;
    const sherd_tensor *first = call->in[0];
    char label[SHERD_MAX_DIMS + 1] = {0};

    if (!first || !all_dots(text))
        return false;
    for (int i = 1; i < call->operands; i++)
        if (!call->in[i] ||
            !sherd__same_shape(call->in[i]->ndim, call->in[i]->shape, first->ndim, first->shape))
            return false;
    for (int d = 0; d < first->ndim; d++)
        label[d] = (char)('A' + d);
    for (int i = 0; i < call->operands; i++)
        memcpy(run->rule.operand[i], label, sizeof label);
    for (int j = 0; j < call->results; j++) {
        memcpy(run->rule.result[j], label, sizeof label);
        for (int d = 0; d < first->ndim; d++)
            call->shape[j][d] = first->shape[d];
    }
    return true;
}

/* ---- what was compiled before --------------------------------------------------------------- */

/*
 * Where the last rule of an operator is kept; NULL: of this call it is not. A rule and the shapes
 * of results follow from the text and the shapes of operands alone, but for what describe has set.
 */
static sherd__ruled *place_of(const sherd__run *run, const char *text)
{
    const sherd_call *call = &run->call;

    if (!run->own || run->like || call->operands > SHERD__RULED_OPERANDS ||
        call->results > SHERD__RULED_RESULTS || strlen(text) >= sizeof call->rule)
        return NULL;
    return &sherd__ops_of(call->world)->ruled[(uintptr_t)call->op / 64 % SHERD__RULED];
}

static bool is_of(const sherd__ruled *r, const sherd_call *call, const char *text)
{
    bool same = r->op == call->op && r->operands == call->operands && r->results == call->results &&
                strcmp(r->text, text) == 0;

    for (int i = 0; same && i < call->operands; i++) {
        const sherd_tensor *t = call->in[i];
        same = r->ndim[i] == (t ? t->ndim : -1);
        for (int d = 0; same && d < r->ndim[i]; d++)
            same = r->shape[i][d] == t->shape[d];
    }
    return same;
}

static bool recall(sherd__run *run, const char *text)
{
    const sherd__ruled *r = place_of(run, text);
    sherd_call *call = &run->call;

    if (!r || !is_of(r, call, text))
        return false;
    for (int i = 0; i < call->operands; i++)
        memcpy(run->rule.operand[i], r->operand[i], sizeof r->operand[i]);
    for (int j = 0; j < call->results; j++) {
        memcpy(run->rule.result[j], r->result[j], sizeof r->result[j]);
        memcpy(call->shape[j], r->made[j], sizeof r->made[j]);
    }
    return true;
}

static void keep(const sherd__run *run, const char *text)
{
    sherd__ruled *r = place_of(run, text);
    const sherd_call *call = &run->call;

    if (!r)
        return;
    r->op = call->op;
    r->operands = call->operands;
    r->results = call->results;
    strcpy(r->text, text);
    for (int i = 0; i < call->operands; i++) {
        const sherd_tensor *t = call->in[i];
        r->ndim[i] = t ? t->ndim : -1;
        for (int d = 0; d < r->ndim[i]; d++)
            r->shape[i][d] = t->shape[d];
        memcpy(r->operand[i], run->rule.operand[i], sizeof r->operand[i]);
    }
    for (int j = 0; j < call->results; j++) {
        memcpy(r->result[j], run->rule.result[j], sizeof r->result[j]);
        memcpy(r->made[j], call->shape[j], sizeof r->made[j]);
    }
}

/* ---- the whole ------------------------------------------------------------------------------ */

const char *sherd__compile(sherd__run *run)
{
    const sherd_call *call = &run->call;
    compiler c;
    const char *text = call->rule[0] ? call->rule : call->op->rule, *at = text, *reason;

    run->rule.operands = call->operands;
    run->rule.results = call->results;
    if (compile_alike(run, text) || recall(run, text)) {
        run->compiled = true;
        return NULL;
    }

    c.run = run;
    c.dots = -1;
    c.known = 0;
    c.described = false;
    reason = read_operands(&c, &at);
    if (!reason && c.dots > 0)
        reason = broadcast(&c);
    for (int i = 0; i < call->operands && !reason; i++)
        reason = write_operand(&c, i);
    if (c.dots < 0)
        c.dots = 0;
    at = strstr(at, "->") ? strstr(at, "->") + 2 : "";
    for (int j = 0; j < call->results && !reason; j++) {
        part p = next_part(&at);
        reason = write_result(&c, j, &p);
    }
    run->compiled = !reason;
    if (!reason && !c.described)
        keep(run, text);
    return reason;
}
