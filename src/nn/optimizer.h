/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of an optimizer: what all kinds share, and what each kind defines. */
#ifndef SHERD__NN_OPTIMIZER_H
#define SHERD__NN_OPTIMIZER_H

#include "kernels/update.h"
#include "nn/module.h"
#include "sherd/optimizers.h"

enum {
    SHERD__OPTIMIZER_STATES = 3,
    /* Tensors of an item, as they are listed: state, and behind it: */
    SHERD__OPTIMIZER_EXACT = SHERD__OPTIMIZER_STATES,
    SHERD__OPTIMIZER_STEPS,
    SHERD__OPTIMIZER_TENSORS
};

typedef struct sherd__optimized {
    sherd_tensor *p; /* counted */
    /*
     * State, laid out as the parameter, or as its dims without one; of a 16-bit parameter the same
     * in f32 (EXACT); and how many steps had a gradient (STEPS): one i64, replicated. Counted; NULL
     * while the parameter is frozen, or without a name. Each has its name, "weight.m", or NULL:
     * there is none.
     */
    sherd_tensor *tensor[SHERD__OPTIMIZER_TENSORS];
    char *name[SHERD__OPTIMIZER_TENSORS];
    int64_t zeros[SHERD__OPTIMIZER_TENSORS]; /* versions of their storages when they were made */
    const sherd_layout *part; /* of the state, if it is sharded further than p; counted, or NULL */
    sherd_tensor *slice;      /* of p, of that layout, while it is updated; not counted */
    int64_t version;          /* of the parameter's storage when EXACT was last the same */
    bool grouped;             /* in a group of parameters */
    bool whole;               /* a matrix that `update_whole` of its kind updates */
    bool ready;               /* on all ranks: a step takes no memory for it */
    bool counted;             /* this rank has begun a step of it */
    double rate, decay;       /* the factor of a step's rate, and its weight decay */
} sherd__optimized;

/*
 * A step of one parameter: this rank's elements. p and state are f32 if the parameter has 16 bits.
 */
typedef struct sherd__update {
    const sherd__kernels *kernels;
    sherd__device *device; /* all of it lies in the GPU's memory; NULL: in the arena */
    sherd_dtype dtype;     /* of the parameter, and its gradient */
    int64_t count, steps;  /* steps: this one included */
    void *p, *state[SHERD__OPTIMIZER_STATES];
    const void *grad;
    double rate, decay, grad_scale;
} sherd__update;

/* The numbers of an optimizer that may change between steps; NULL: it has none. */
typedef struct sherd__moments {
    double *momentum, *beta1, *beta2;
    bool stateless; /* made without momentum, so there is no state for one */
} sherd__moments;

/* Updates that are queued together on a GPU, at most: a launch takes as many. */
enum { SHERD__TOGETHER = 48 };

/* What defines a kind of optimizer. One constant per kind. */
typedef struct sherd__optimizer_kind {
    const char *function;                       /* that makes one, for messages */
    const char *state[SHERD__OPTIMIZER_STATES]; /* names */
    void (*update)(const sherd_optimizer *o, const sherd__update *u);
    /* The same of `count` parameters of one dtype, SHERD__TOGETHER at most, all of it in the GPU's
     * memory. NULL: none is updated there. */
    void (*update_there)(const sherd_optimizer *o, const sherd__update *u, int count);
    /* If it needs matrices whole: all items that are, which have the first state only, in a step of
     * this rate. False: ended by the alarm. NULL: there are none. */
    bool (*update_whole)(sherd_optimizer *o, double rate, double grad_scale);
    /* NULL: there are none. */
    sherd__moments (*moments)(sherd_optimizer *o);
    /*
     * The dim of a parameter that one of its states lacks, or one of those below. NULL: states are
     * as large as parameters. Not NULL: `update_whole` updates all items.
     */
    int (*lacks)(const sherd_tensor *p, int state);
    /* Fields of its options, which ranks must agree on. NULL: nothing is noted of them. */
    const sherd_op *options;
} sherd__optimizer_kind;

enum { SHERD__LACKS_NONE = -1, SHERD__NO_STATE = -2 };

/* What decides on rate and decay of parameters: members of the options of all kinds. */
typedef struct sherd__grouping {
    double weight_decay;
    bool decay_all;
    const sherd_optimizer_group *group; /* [count] */
    int count;
} sherd__grouping;

struct sherd_optimizer {
    sherd_world *world;
    sherd_module *module; /* whose parameters they are; outlives the optimizer */
    const sherd__optimizer_kind *kind;
    int states; /* tensors of state that a parameter has: the first ones of the kind */
    union {     /* defaults filled in */
        sherd_adamw_options adam;
        sherd_sgd_options sgd;
        sherd_rmsprop_options rmsprop;
        sherd_adagrad_options adagrad;
        sherd_lion_options lion;
        sherd_nadam_options nadam; /* RAdam's too */
        sherd_adafactor_options adafactor;
        struct {
            sherd_muon_options with;
            sherd_adamw_options others;
        } muon;
    } options;
    const sherd_mesh *mesh; /* of all distributed parameters; NULL = there are none */
    uint64_t family;        /* of the parameters' storages, plus 1 of those of states: see lost.h */
    int count;
    sherd__optimized *item; /* [count] */
    /* Room for settling, [count]: */
    int *which;
    sherd_tensor **from, **moved;
    const sherd_layout **to;
    double *shared;           /* [ranks of the mesh] */
    int found;                /* the item that was looked for last */
    uint64_t checks;          /* failed ones, when items were last made ready */
    uint64_t settings;        /* hash of what may change: of groups, and moments */
    sherd__grouping grouping; /* as made, but without groups */
    int64_t buffered;         /* of the module, when all items were seen in it */
    bool of_callback;         /* made by a function of the program's that the library calls */
};

/* Set *out to NULL, and refuse NULL arguments. */
sherd_status sherd__optimizer_start(sherd_optimizer **out, sherd_module *module,
                                    const char *function);

/* Make one over all parameters of a module; `like` has kind, states and options. */
sherd_status sherd__optimizer_create(sherd_optimizer **out, sherd_module *module,
                                     const sherd_optimizer *like, const sherd__grouping *grouping);

/* Give each item its rate and decay (groups.c). `all`: the parameters of the items, just listed. */
sherd_status sherd__optimizer_group(sherd_optimizer *o, const sherd__grouping *grouping,
                                    const sherd_named_parameter *all);

/* Hash the settings, after one of them has changed. */
void sherd__optimizer_hash(sherd_optimizer *o);

/* The item of a parameter: mostly the one that was found last, or the next one. NULL: none. */
sherd__optimized *sherd__optimizer_item(sherd_optimizer *o, const sherd_tensor *p);
/* The parameter that a tensor of its state belongs to. Fast in the order of the list. */
const sherd_tensor *sherd__optimizer_owner(sherd_optimizer *o, const sherd_tensor *state);

/* Where a parameter is updated; NULL: on the CPU. */
sherd__device *sherd__optimizer_device(const sherd_optimizer *o, const sherd_tensor *p);
/* How many tensors of state an item has. */
int sherd__optimizer_states(const sherd_optimizer *o, const sherd__optimized *item);
/*
 * Name the state of a new item after its parameter, and make it unless the parameter is frozen.
 * After a failure the item can be destroyed too.
 */
sherd_status sherd__optimizer_start_item(const sherd_optimizer *o, sherd__optimized *item,
                                         const sherd_named_parameter *parameter);
/*
 * Make the state of an item that has none yet, where its parameter is: zeros. A second call goes on
 * after a failure. What a failed step has taken with it before any step counted, or anybody wrote
 * it, is made anew.
 */
sherd_status sherd__optimizer_start_state(const sherd_optimizer *o, sherd__optimized *item);
/*
 * What the e-th tensor of an item is called, and the tensor, NULL if it has not begun; false: there
 * is none, or the parameter is no longer in the module. `walk`: of sherd__mark_holders.
 */
bool sherd__optimizer_entry(const sherd_optimizer *o, const sherd__optimized *item, int e,
                            uint64_t walk, sherd_named_state *out);
/* begun[count]: 1 for each item that has state; and make that of items that have a 1. */
void sherd__optimizer_begun(const sherd_optimizer *o, int64_t *begun);
sherd_status sherd__optimizer_start_begun(const sherd_optimizer *o, const int64_t *begun);

/* What is updated of an item: its parameter, or the slice. */
static inline sherd_tensor *sherd__updated(const sherd__optimized *item)
{
    return item->slice ? item->slice : item->p;
}
enum { SHERD__NAME_TEXT = 200 };
/* The whole name of an item's tensor, for messages: "layers.0.wq.weight.m". Returns out. */
const char *sherd__optimizer_name(const sherd_optimizer *o, const sherd__optimized *item, int i,
                                  char out[SHERD__NAME_TEXT]);
/* Whether a step updates this item by itself: it has a gradient, and no `update_whole`. */
bool sherd__optimizer_takes(const sherd__optimized *item);
/*
 * Make the state that the item lacks, and see whether it can be used. False: the alarm is raised,
 * as it is for state that was lost because an earlier step changed it on some ranks only.
 */
bool sherd__optimizer_has_state(const sherd_optimizer *o, sherd__optimized *item);
/* Update one parameter by itself, on the CPU; false: ended by the alarm. */
bool sherd__optimizer_update(const sherd_optimizer *o, sherd__optimized *item, double rate,
                             double grad_scale);
/* Update all but those whose state is sharded further. False: ended by the alarm. */
bool sherd__optimizer_update_all(const sherd_optimizer *o, double rate, double grad_scale);
/* A tensor with that layout, in memory of its own. */
sherd_tensor *sherd__copied_to(sherd_tensor *t, const sherd_layout *to);
/*
 * After a move in the middle of a step, which all ranks may have made though they do not end the
 * step: what has been changed before it, the state, and `parameters` if some were, is lost unless
 * they do.
 */
void sherd__optimizer_moved(const sherd_optimizer *o, bool parameters);
/*
 * Whether all are still parameters: false, by the alarm, where one became whole numbers, a buffer.
 */
bool sherd__optimizer_has_parameters(sherd_optimizer *o, const char *function);
/* Set item->slice: the part of the parameter that its state is for. False: ended by the alarm. */
bool sherd__optimizer_slice(sherd__optimized *item);
/* Update those whose state is sharded further (slices.c). False: ended by the alarm. */
bool sherd__optimizer_update_slices(const sherd_optimizer *o, double rate, double grad_scale);

/*
 * What a step needs of an item that has a gradient, except where p lies and the number of the step;
 * and counting that. False: ended by the alarm.
 */
bool sherd__optimizer_begin(const sherd_optimizer *o, sherd__optimized *item, sherd__update *u);
bool sherd__optimizer_count(sherd__optimized *item, sherd__update *u);

/*
 * What a step changes, in the GPU's memory if it computes there: the parameter, or its exact copy
 * (NULL: ended by the alarm); and that copy, changed, rounded into the parameter (false: likewise).
 */
void *sherd__optimizer_change(sherd__optimized *item, sherd__device *device);
bool sherd__optimizer_round(sherd__optimized *item, sherd__device *device, const void *changed);

/*
 * If a 16-bit parameter was written since the last step, set its exact copy from it. False: ended
 * by the alarm.
 */
bool sherd__optimizer_refresh(sherd__optimized *item, sherd__device *device);

/*
 * Whether this rank counts its part of a distributed tensor: of ranks that hold equal parts (they
 * differ only on axes that do not shard it) only the one at coordinate 0 does.
 */
bool sherd__counts_here(const sherd_tensor *t);

/*
 * The sums of |x|^p (or the largest |x|) over the gradients that this rank counts: distributed
 * ones, and plain ones. `once`: without copies that another optimizer counts. False: ended by the
 * alarm.
 */
bool sherd__optimizer_powers(sherd_optimizer *o, const char *function, double p, bool once,
                             double *distributed, double *plain);
/* As sherd_optimizer_grad_norm_of. */
double sherd__optimizer_norm(sherd_optimizer *o, const char *function, double p);

/* Whether gradients can be clipped to `most`, the "norm" or "bound"; false: the alarm is raised. */
bool sherd__optimizer_bound(sherd_world *world, const char *function, const char *what,
                            double most);
/* Whether a step can have this learning rate; false: the alarm is raised. */
bool sherd__optimizer_rate(sherd_world *world, const char *function, double rate);

/* Scale all gradients, which are settled. */
void sherd__optimizer_scale(sherd_optimizer *o, const char *function, double by);

/* As sherd_optimizers_grad_norm_of. NULL: there is no world to be told of errors. */
double sherd__optimizers_norm(const char *function, const sherd_optimizers *all, double p);
sherd_world *sherd__optimizers_world(const sherd_optimizers *all);

/* As sherd_optimizer_load; `status`: an earlier failure. */
sherd_status sherd__optimizer_load(const sherd__loading *what, sherd_optimizer *optimizer,
                                   sherd_status status);

/* An update as kernels/update.h has it: on the CPU. */
sherd__update_pass sherd__optimizer_pass(const sherd__update *u);

/* One step of a kind whose state is m and v, and vmax (adamw.c). */
void sherd__adam_update(const sherd_adamw_options *with, const sherd__update *u, bool decoupled);
sherd__moments sherd__adam_moments(sherd_optimizer *o);
extern const sherd_op sherd__adam_options; /* the fields of sherd_adamw_options */
void sherd__adam_update_there(const sherd_adamw_options *with, const sherd__update *u, int count,
                              bool decoupled);
sherd_adamw_options sherd__adam_defaults(const sherd_adamw_options *options);
sherd_status sherd__adam_check(sherd_world *world, const char *function,
                               const sherd_adamw_options *o);
sherd_status sherd__adam_create(sherd_optimizer **out, sherd_module *module,
                                const sherd_adamw_options *options,
                                const sherd__optimizer_kind *kind);

#endif
