"""`torch.compile(model, backend="autofuse")`: graphs of dynamo become libraries, and whatever cannot runs in eager.

Start at `backend.py`, which torch finds through the entry point. `graph.py` is what a graph becomes, `export.py` makes
ONNX of it, `library.py` a session by what the database knows, `cache.py` keeps libraries on the disk under what
`digest.py` says of a graph. torch itself is imported by the functions that use it.
"""
