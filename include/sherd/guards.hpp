/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For C++11 and later: guards that close worlds, end scopes and destroy objects when a block is
 * left, also by an exception. Everything else is used as in C. This header adds no code to the
 * library. No function of the library throws; only sherd::check, sherd::attempt and the
 * constructors here do.
 *
 *     sherd::world world;
 *     sherd::handle<sherd_module> model(make_model(world));
 *     while (more()) {
 *         sherd::scope step(world);          // tensors of the step are released at the end
 *         sherd_backward(loss_of(batch));
 *         sherd::check(world);               // all ranks throw, with one text, or none does
 *     }
 *
 * If only some ranks throw an exception, they leave early, and the others get SHERD_EDIFFER or
 * SHERD_EPEER; within sherd::attempt all ranks throw, and the world goes on. Exceptions must not
 * pass through the library: a hook or any other callback catches its own, and a forward may be
 * wrapped in sherd::forward.
 *
 * Compiled without exceptions (-fno-exceptions) nothing throws: sherd::check returns the status,
 * which the program must look at, and a world that does not open has a status() and is NULL.
 * Without RTTI (-fno-rtti) nothing changes.
 */
#ifndef SHERD_GUARDS_H
#define SHERD_GUARDS_H

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define SHERD_GUARDS_THROW 1
#else
#define SHERD_GUARDS_THROW 0
#endif

#include <memory>
#include <utility>
#if SHERD_GUARDS_THROW
#include <cstdio>
#include <stdexcept>
#include <string>
#endif

#include "autocast.h"
#include "files.h"
#include "halo.h"
#include "lbfgs.h"
#include "optimizer.h"
#include "pipeline.h"

namespace sherd
{

#if SHERD_GUARDS_THROW

/* A status, and the text of sherd_world_error. */
class error : public std::runtime_error
{
  public:
    error(sherd_status status, const std::string &text, const sherd_world *checked = nullptr)
        : std::runtime_error(text), code(status), world(checked)
    {
    }
    sherd_status status() const noexcept
    {
        return code;
    }
    /** Whether all ranks of a world throw it: the error of its check. @local */
    bool on_all_ranks(const sherd_world *w) const noexcept
    {
        return w && world == w;
    }

  private:
    sherd_status code;
    const sherd_world *world;
};

/** Throw sherd::error unless a call has returned SHERD_OK. @local */
inline void check(const sherd_world *w, sherd_status status)
{
    if (status != SHERD_OK)
        throw error(status, w ? sherd_world_error(w) : sherd_status_text(status));
}

/** sherd_world_check; throw sherd::error if it fails. @collective the world */
inline void check(sherd_world *w)
{
    sherd_status status = sherd_world_check(w);

    if (status != SHERD_OK)
        throw error(status, w ? sherd_world_error(w) : sherd_status_text(status), w);
}

/* The alarm for an exception: its text, without the rank that sherd_world_fail puts in front. */
inline void fail(sherd_world *w, sherd_status status, const char *text)
{
    int rank = 0, skip = 0;

    if (std::sscanf(text, "rank %d: %n", &rank, &skip) < 1)
        skip = 0;
    sherd_world_fail(w, status, text + skip);
}

/* The same for the exception that is being handled. */
inline void fail(sherd_world *w)
{
    try {
        throw;
    } catch (const error &e) {
        fail(w, e.status(), e.what());
    } catch (const std::exception &e) {
        fail(w, SHERD_EINVAL, e.what());
    } catch (...) {
        fail(w, SHERD_EINVAL, "an exception of an unknown class");
    }
}

/**
 * A forward that may throw: the alarm is raised with the text of what F throws.
 *
 *     sherd_module_create(&block, world, sherd::forward<block_forward>, nullptr);
 *
 * @collective as F   @errors those of F, by the alarm; EINVAL an exception of another class
 */
template <sherd_forward F>
void forward(sherd_module *self, const sherd_args *in, sherd_args *out) noexcept
{
    try {
        F(self, in, out);
    } catch (...) {
        fail(sherd_module_world(self));
    }
}

/**
 * Run a step of the program, and check the world. If a rank throws anything in the step, the other
 * ranks' collective calls fail, scopes that the step has left open end, and all ranks throw
 * sherd::error with the text of one exception; then the world goes on. The step may check, too, but
 * does not throw an error again that is kept from a check before it: no other rank knows of that.
 *
 *     sherd::attempt(world, [&] {
 *         sherd::scope step(world);
 *         solve(); // may throw, on some ranks only
 *     });
 *
 * @collective the world   @errors those of sherd_world_check; EINVAL an exception of another class
 */
template <class Step> void attempt(sherd_world *w, Step step)
{
    int depth = sherd_scope_depth(w);

    try {
        step();
    } catch (const error &e) {
        sherd_scope_end_to(w, depth);
        if (e.on_all_ranks(w))
            throw; /* a rank that has thrown another one is at the check that this one is of */
        fail(w, e.status(), e.what());
    } catch (...) {
        fail(w);
    }
    sherd_scope_end_to(w, depth);
    check(w);
}

#else

/** The status itself. @local */
SHERD_MUST_CHECK inline sherd_status check(const sherd_world *, sherd_status status) noexcept
{
    return status;
}

/** sherd_world_check; the text of a failure is that of sherd_world_error. @collective the world */
SHERD_MUST_CHECK inline sherd_status check(sherd_world *w) noexcept
{
    return sherd_world_check(w);
}

#endif

/* A world, closed at the end of its block. Declare objects that belong to it after it. */
class world
{
  public:
    /** Throws unless it opens. Without exceptions: see status(). @collective all ranks */
    explicit world(const sherd_world_options *options = nullptr) : world(options, sherd_world_open)
    {
    }
    /**
     * A world that another function opens, such as that of a communicator (mpi.h):
     *
     *     sherd::world world(nullptr, [](sherd_world **out, const sherd_world_options *options) {
     *         return sherd_world_open_mpi(out, MPI_COMM_WORLD, options);
     *     });
     *
     * @collective as `open`
     */
    template <class Open> world(const sherd_world_options *options, Open open)
    {
#if SHERD_GUARDS_THROW
        char text[SHERD_ERROR_BYTES] = "";
        sherd_world_options mine = options ? *options : sherd_world_options();

        if (!mine.error)
            mine.error = text;
        opened = open(&self, &mine);
        if (opened != SHERD_OK)
            throw error(opened, mine.error);
#else
        opened = open(&self, options); /* whose `error` gets the text, or stderr */
#endif
    }
    ~world()
    {
        static_cast<void>(close());
    }
    world(const world &) = delete;
    world &operator=(const world &) = delete;
    operator sherd_world *() const noexcept
    {
        return self;
    }
    /** What sherd_world_open has returned; if it has failed, the world is NULL. @local */
    sherd_status status() const noexcept
    {
        return opened;
    }
    /** Close it now, and return the status of sherd_world_close. @collective the world */
    sherd_status close() noexcept
    {
        sherd_world *mine = self;
        self = nullptr;
        return sherd_world_close(mine);
    }

  private:
    sherd_world *self = nullptr;
    sherd_status opened = SHERD_OK;
};

/* A scope (tensor.h): tensors and layouts made in the block are released at its end. */
class scope
{
  public:
    explicit scope(sherd_world *w) noexcept : on(w)
    {
        sherd_scope_begin(on);
    }
    ~scope()
    {
        sherd_scope_end(on);
    }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

  private:
    sherd_world *on;
};

/* Turns recording for backward on or off until the end of the block. */
class recording
{
  public:
    recording(sherd_world *w, bool is_on) noexcept : on(w), before(sherd_set_recording(w, is_on))
    {
    }
    ~recording()
    {
        sherd_set_recording(on, before);
    }
    recording(const recording &) = delete;
    recording &operator=(const recording &) = delete;

  private:
    sherd_world *on;
    bool before;
};

/* Sets the dtype of autocast (autocast.h) until the end of the block. */
class autocast
{
  public:
    autocast(sherd_world *w, sherd_dtype dtype) noexcept
        : on(w), before(sherd_set_autocast(w, dtype))
    {
    }
    ~autocast()
    {
        sherd_set_autocast(on, before);
    }
    autocast(const autocast &) = delete;
    autocast &operator=(const autocast &) = delete;

  private:
    sherd_world *on;
    sherd_dtype before;
};

/* Keeps a tensor beyond its scope, but not beyond its world. */
class kept
{
  public:
    kept() noexcept = default;
    explicit kept(sherd_tensor *t) : self(t ? sherd_tensor_retain(t) : nullptr)
    {
    }
    kept(const kept &other) : kept(other.self)
    {
    }
    kept(kept &&other) noexcept : self(other.self)
    {
        other.self = nullptr;
    }
    kept &operator=(kept other) noexcept
    {
        std::swap(self, other.self);
        return *this;
    }
    ~kept()
    {
        sherd_tensor_release(self);
    }
    operator sherd_tensor *() const noexcept
    {
        return self;
    }

  private:
    sherd_tensor *self = nullptr;
};

/* Keeps a layout beyond its scope, but not beyond its world. */
class kept_layout
{
  public:
    kept_layout() noexcept = default;
    explicit kept_layout(const sherd_layout *layout) : self(sherd_layout_retain(layout))
    {
    }
    kept_layout(const kept_layout &other) : kept_layout(other.self)
    {
    }
    kept_layout(kept_layout &&other) noexcept : self(other.self)
    {
        other.self = nullptr;
    }
    kept_layout &operator=(kept_layout other) noexcept
    {
        std::swap(self, other.self);
        return *this;
    }
    ~kept_layout()
    {
        sherd_layout_release(self);
    }
    operator const sherd_layout *() const noexcept
    {
        return self;
    }

  private:
    const sherd_layout *self = nullptr;
};

struct destroyer {
    void operator()(sherd_module *m) const noexcept
    {
        sherd_module_destroy(m);
    }
    void operator()(sherd_optimizer *o) const noexcept
    {
        sherd_optimizer_destroy(o);
    }
    void operator()(sherd_lbfgs *l) const noexcept
    {
        sherd_lbfgs_destroy(l);
    }
    void operator()(sherd_file *f) const noexcept
    {
        sherd_file_destroy(f);
    }
    void operator()(sherd_ghosts *g) const noexcept
    {
        sherd_ghosts_destroy(g);
    }
    void operator()(sherd_channel *c) const noexcept
    {
        sherd_channel_destroy(c);
    }
    void operator()(sherd_pipeline *p) const noexcept
    {
        sherd_pipeline_destroy(p);
    }
};

/* Destroys an object at the end of its block: handle<sherd_module>, handle<sherd_optimizer>, ... */
template <class T> using handle = std::unique_ptr<T, destroyer>;

} // namespace sherd

#endif
