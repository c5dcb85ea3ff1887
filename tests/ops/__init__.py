"""Every op of PyTorch's op database (`torch.testing._internal.common_methods_invocations.op_db`), compiled against eager, on the CPU.

    make ops                                   # everything; RESULTS.md is written from it
    python -m tests.ops --only add,sort        # these ops
    python -m tests.ops --store ops.jsonl      # keeps what is done: run again, it goes on there
    pytest tests/ops                           # a few samples of every op, for every run of the tests

A *case* (`cases.py`) is one call: an op, a dtype, a form and one of the op's samples.  Forms: the function, the same on strided inputs and on inputs
without elements, the method, the in-place form, `out=` with results laid out as eager lays them and otherwise, the function under vmap on stacked inputs,
its counterpart of NumPy on arrays (`transformed.py`), and the op's error inputs.  `trial.py` runs it
plainly and captured on copies of its inputs (strides and aliasing kept); `compare.py` says whether they did the same: values, dtype, strides, aliasing,
changed inputs, type of exception, random stream.

A captured call is checked in up to three *ways*, because a C++ compiler's run for every one of a hundred thousand samples would take a day:
- *recorded*: the captured graph as it is, op by op.  Every case.
- *loops*: the graph lowered and fused, run by the reference interpreter (`ir/interp.py`).  Every case that has a loop.
- *compiled*: the native plan with kernels built by the C++ compiler.  For each op some cases of each dtype that has loops, all of an op built together
  (`work.py`): the first of five spread over the samples whose loops are not the text of an earlier one's.

Numbers must be eager's to the bit, or as near as eager's to what the op gives in float64; elements that eager leaves as the memory was
(`undefined.py` finds out) are not compared.  An op counts as captured if all its samples
in the function form that eager accepts are one graph without a break, or need no graph (nothing but views).
"""
