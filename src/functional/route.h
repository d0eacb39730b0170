/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows sent to named shards (sherd/ops_routes.h), in either direction: what the operators (route.c)
 * and their forward (travel.c) share. Operands are the rows, the shard numbers, which lie on each
 * rank as its rows do where the route began, and the counts.
 */
#ifndef SHERD__FUNCTIONAL_ROUTE_H
#define SHERD__FUNCTIONAL_ROUTE_H

#include "apply/operator.h"

enum { SHERD__ROUTE_ROWS, SHERD__ROUTE_SHARD, SHERD__ROUTE_COUNT };

/* Forward: the rows to their shards, or back. */
bool sherd__travel(sherd_call *call, bool back);

#endif
