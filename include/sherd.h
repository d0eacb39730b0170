/* SPDX-License-Identifier: Apache-2.0 */
/* All of sherd. Read the headers in this order: each uses only the terms of those before it. */
#ifndef SHERD_H
#define SHERD_H

#include "sherd/status.h"
#include "sherd/dtype.h"
#include "sherd/world.h"
#include "sherd/carrier.h"
#include "sherd/mesh.h"
#include "sherd/layout.h"
#include "sherd/plan.h"
#include "sherd/tensor.h"
#include "sherd/random.h"
#include "sherd/values.h"
#include "sherd/print.h"
#include "sherd/halo.h"
#include "sherd/autograd.h"
#include "sherd/autocast.h"
#include "sherd/op.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_losses.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_shape.h"
#include "sherd/ops_fft.h"
#include "sherd/ops_stencil.h"
#include "sherd/ops_points.h"
#include "sherd/module.h"
#include "sherd/layers.h"
#include "sherd/optimizer.h"
#include "sherd/scaler.h"
#include "sherd/files.h"
#include "sherd/parallel.h"
#include "sherd/comm.h"
#include "sherd/info.h"

#endif
