/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two places of a storage in a world with GPUs: *here* is its block of the arena, *there* a
 * block of the GPU's memory (docs/decisions/106). Reading in one place copies the contents there if
 * they are stale; writing in one makes the other stale. All copies between the two are made here;
 * mirror.c has the pointers. Without a GPU none of this runs.
 */
#include "tensor/state.h"

bool sherd__device_furnish(sherd__storage *storage)
{
    sherd__device *device = sherd__world_device(storage->world);

    if (!storage->device && !(storage->device = sherd__device_take(device, storage->bytes)) &&
        sherd__device_sound(storage->world))
        sherd__raise(storage->world, SHERD_ENOMEM, "%s has no memory for a tensor of %lld bytes",
                     sherd__device_name(device), (long long)storage->bytes);
    return storage->device != NULL;
}

bool sherd__furnish_here(sherd__storage *storage)
{
    if (!storage->block)
        storage->block = sherd__block_take(storage->world, storage->bytes, true);
    sherd__block_serves(storage->world, storage->block, storage->serves);
    return storage->block && sherd__block_writable(storage->world, storage->block);
}

bool sherd__bring_here(sherd__storage *storage)
{
    sherd_world *world = storage->world;

    if (storage->here || storage->bytes == 0)
        return true;
    if (!sherd__furnish_here(storage))
        return false;
    if (!sherd__device_download(sherd__world_device(world), sherd__block_data(storage->block),
                                storage->device->data, storage->bytes)) {
        sherd__device_sound(world);
        return false;
    }
    storage->here = true;
    return true;
}

bool sherd__hold_here(sherd__storage *storage)
{
    if (storage->device && !sherd__bring_here(storage))
        return false;
    storage->there = false;
    return true;
}

bool sherd__bring_there(sherd__storage *storage)
{
    sherd_world *world = storage->world;

    if (storage->there || storage->bytes == 0)
        return true;
    if (!sherd__device_furnish(storage) || !sherd__block_readable(world, storage->block))
        return false;
    sherd__device_upload(sherd__world_device(world), storage->device->data,
                         sherd__block_data(storage->block), storage->bytes);
    storage->there = sherd__device_sound(world); /* the upload may have been left out: no memory */
    return storage->there;
}
