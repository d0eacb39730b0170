#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The ATen operators for which PyTorch's DTensor has a sharding rule or a handler, and which of them
docs/from_pytorch_operators.md does not name: none, or the exit status is 1. --list prints all.

Left out, since they say nothing new: what writes in place (add_), backwards, the lists of optimizers
(_foreach_add), views that copy (view_copy), what only prims and functionalized programs call."""
import os
import re
import sys

PAGE = os.path.join(os.path.dirname(__file__), "..", "docs", "from_pytorch_operators.md")
LEFT_OUT = re.compile(
    r"prims::|.*_$|_foreach_|_amp_foreach_|_fused_adam|.*_backward|.*_copy$|.*_functional$|__.*__$"
    r"|_unsafe_view$|_to_copy$|_local_scalar_dense$|_linalg_check_errors$|_index_put_impl$"
    r"|_batch_norm_with_update$|_native_batch_norm_legit|alias$|is_pinned$|is_same_size$")


def operators():
    import torch.distributed.tensor  # noqa: F401
    from torch.distributed.tensor import DTensor

    dispatcher = DTensor._op_dispatcher
    rules = dispatcher.sharding_propagator
    found = set(dispatcher._custom_op_handlers) | set(dispatcher._random_ops)
    for table in ("op_strategy_funcs", "op_to_rules", "op_single_dim_strategy_funcs"):
        found |= set(getattr(rules, table, {}))
    names = {op._schema.name.replace("aten::", "") for op in found}
    return sorted(name for name in names if not LEFT_OUT.match(name))


def main():
    names = operators()
    if sys.argv[1:] == ["--list"]:
        print("\n".join(names))
        return 0
    with open(PAGE) as page:
        there = set(re.findall(r"`([A-Za-z0-9_]+)`", page.read()))
    lacking = [name for name in names if name not in there]
    for name in lacking:
        print(name)
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
